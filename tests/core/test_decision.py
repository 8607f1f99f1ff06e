"""One rule for decision and label: no answer contradicts itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.core.decision import Assessment, Decision, Label, assess, finding_of
from promptguard.core.ensemble import MERGES, merge
from promptguard.core.layers import DETECTION_F, Layer, LayerPriority, MultiNeutrosophicPrompt
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.core.reciprocity import ExchangeType

SYSTEM, USER = LayerPriority.SYSTEM, LayerPriority.USER
DEFAULT_SYSTEM = Neutrosophic(0.8, 0.3, 0.1)
VIOLATIONS = (Label.MANIPULATIVE, Label.EXTRACTIVE)
unit = st.floats(0, 1)
values = st.builds(Neutrosophic, unit, unit, unit)
kinds = st.sampled_from(VIOLATIONS)


def assessed(
    *users: Neutrosophic,
    system: Neutrosophic | None = None,
    threshold: float = DETECTION_F,
    finding: Label = Label.MANIPULATIVE,
    chars: int = 10,
    is_unresolved: bool = False,
) -> Assessment:
    layers = [
        Layer(priority=USER, name="USER", chars=chars, merged=value, detection_f=threshold)
        for value in users
    ]
    if system is not None:
        layers.append(Layer(priority=SYSTEM, name="SYSTEM", merged=system))
    prompt = MultiNeutrosophicPrompt(layers)
    return assess(prompt, finding=finding, is_unresolved=is_unresolved)


@pytest.mark.parametrize(
    ("value", "decision", "label"),
    [
        (Neutrosophic(0.9, 0.1, 0.05), "allow", "reciprocal"),
        (Neutrosophic(0.9, 0.5, 0.05), "caution", "borderline"),
        (Neutrosophic(0.55, 0.3, 0.3), "caution", "borderline"),
        (Neutrosophic(0.3, 0.3, 0.2), "caution", "manipulative"),
        (Neutrosophic(0.9, 0.1, 0.65), "caution", "manipulative"),
        (Neutrosophic(0.9, 0.1, 0.66), "block", "manipulative"),
        (Neutrosophic(0.1, 0.2, 0.9), "block", "manipulative"),
    ],
)
def test_the_rule_at_its_bounds(value: Neutrosophic, decision: str, label: str) -> None:
    """Reciprocal above 0.5, borderline from 0.3, a violation below or from the threshold on."""
    found = assessed(value)
    assert (found.decision, found.label) == (decision, label)


@given(
    st.lists(values, min_size=1, max_size=3),
    st.none() | values,
    st.floats(0.05, 1.0),
    kinds,
    st.sampled_from((10, 6000)),
    st.booleans(),
)
def test_no_answer_contradicts_itself(
    users: list[Neutrosophic],
    system: Neutrosophic | None,
    threshold: float,
    finding: Label,
    chars: int,
    is_unresolved: bool,
) -> None:
    """Decision, label, balances and exchange type agree, whatever was judged."""
    found = assessed(
        *users,
        system=system,
        threshold=threshold,
        finding=finding,
        chars=chars,
        is_unresolved=is_unresolved,
    )
    exchange = found.exchange
    if found.decision is Decision.BLOCK:
        assert found.label is finding
        assert exchange.balance == found.user_balance == -1.0
        assert exchange.exchange_type is ExchangeType.EXTRACTIVE
    if found.decision is Decision.ALLOW:
        assert found.label is Label.RECIPROCAL
        assert min(exchange.balance, found.user_balance) > 0.5
        assert exchange.exchange_type is not ExchangeType.EXTRACTIVE
        assert not is_unresolved
    assert (found.label is Label.RECIPROCAL) == (found.decision is Decision.ALLOW)
    if found.label is Label.BORDERLINE:
        assert found.decision is Decision.CAUTION
        assert exchange.balance > -1.0


@given(st.lists(values, min_size=2, max_size=4), st.sampled_from(tuple(MERGES.names()[:4])))
def test_every_merge_strategy_keeps_to_the_rule(members: list[Neutrosophic], name: str) -> None:
    """A weighted merge between 0.65 and a higher threshold printed allow beside balance -1."""
    evaluations = {str(index): value for index, value in enumerate(members)}
    weights = {kind: 1.0 + index for index, kind in enumerate(evaluations)}
    value = merge(name, evaluations, weights)
    for threshold in (0.5, DETECTION_F, 0.9):
        found = assessed(value, system=DEFAULT_SYSTEM, threshold=threshold)
        is_broken = found.exchange.balance == -1.0
        assert is_broken == (found.decision is Decision.BLOCK) == (value.falsehood >= threshold)


@given(values, kinds)
def test_a_violation_has_one_name_with_and_without_a_system_layer(
    user: Neutrosophic, finding: Label
) -> None:
    """The label follows what was found, not how many layers were given."""
    alone = assessed(user, finding=finding)
    layered = assessed(user, system=DEFAULT_SYSTEM, finding=finding)
    assert alone.decision is layered.decision or (
        # Seen alone it is just above 0.5; a developer's layer of value 0.8 can lower that.
        alone.user_balance > 0.5 > layered.exchange.balance
    )
    if alone.decision is Decision.BLOCK:
        assert alone.label is layered.label is finding


def test_an_unresolved_doubt_is_never_allowed() -> None:
    """However harmless the first judge found it."""
    found = assessed(Neutrosophic(1.0, 0.0, 0.0), is_unresolved=True)
    assert (found.decision, found.label) == (Decision.CAUTION, Label.BORDERLINE)


def test_a_developers_broken_layer_is_caution() -> None:
    """The exchange is broken, but the user did not break it."""
    found = assessed(Neutrosophic(0.9, 0.1, 0.0), system=Neutrosophic(0.1, 0.1, 0.9))
    assert found.exchange.balance == -1.0
    assert found.decision is Decision.CAUTION


def test_a_long_text_below_the_threshold_is_caution() -> None:
    """Saturation breaks the exchange off without being a detection."""
    found = assessed(Neutrosophic(0.9, 0.1, 0.6), chars=6000)
    assert (found.exchange.balance, found.decision) == (-1.0, Decision.CAUTION)
    assert found.label is Label.MANIPULATIVE


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((), "manipulative"),
        (((0.9, Label.MANIPULATIVE), (0.8, Label.EXTRACTIVE)), "manipulative"),
        (((0.8, Label.MANIPULATIVE), (0.9, Label.EXTRACTIVE)), "extractive"),
        (((0.9, Label.MANIPULATIVE), (0.9, Label.EXTRACTIVE)), "extractive"),
    ],
)
def test_the_finding_is_the_kind_with_the_highest_falsehood(found, expected: str) -> None:
    """Of equals extractive; without any, manipulative."""
    assert finding_of(found) == expected
