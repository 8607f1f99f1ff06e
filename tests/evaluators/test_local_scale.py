"""From calibrated probabilities to values on the published scale."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.core.decision import INDETERMINATE_FROM, Assessment, Label, assess
from promptguard.core.layers import Layer, LayerPriority, MultiNeutrosophicPrompt
from promptguard.core.trust import TrustViolation
from promptguard.evaluators.local import (
    DECISION,
    falsehood_of,
    indeterminacy_of,
    truth_of,
    value_of,
)
from promptguard.signals import noisy_or

shares = st.floats(0.0, 1.0)
thresholds = st.floats(0.01, 0.99)


def assessed(falsehood: float, **doubts: float) -> Assessment:
    value = value_of(falsehood, indeterminacy_of(falsehood, **doubts))
    layer = Layer(
        priority=LayerPriority.USER, name="USER", evaluations=(value,), detection_f=DECISION
    )
    return assess(MultiNeutrosophicPrompt([layer]), finding=Label.MANIPULATIVE)


@given(thresholds)
def test_the_threshold_lands_at_the_decision(threshold: float) -> None:
    """Whatever the model's threshold is, nothing is 0 and certain is 1."""
    assert falsehood_of(0.0, threshold) == 0.0
    assert falsehood_of(threshold, threshold) == pytest.approx(DECISION)
    assert falsehood_of(1.0, threshold) == 1.0


@given(shares, shares, shares)
def test_falsehood_grows_with_the_probability(one: float, other: float, threshold: float) -> None:
    """And truth falls with falsehood; both stay in bounds, also for absurd thresholds."""
    low, high = (falsehood_of(p, threshold) for p in sorted((one, other)))
    assert 0.0 <= low <= high <= 1.0
    assert truth_of(low) >= truth_of(high)


@given(shares, shares, shares, st.booleans())
def test_indeterminacy_is_bounded_and_grows_with_every_reason(
    falsehood: float, disagreement: float, familiarity: float, is_truncated: bool
) -> None:
    """No reason to doubt ever lowers it."""
    calm = indeterminacy_of(falsehood)
    doubtful = indeterminacy_of(
        falsehood,
        disagreement=disagreement,
        familiarity=familiarity,
        is_truncated=is_truncated,
    )
    assert 0.0999 <= calm <= doubtful + 1e-9 <= 1.0 + 1e-9
    value_of(falsehood, doubtful)


@given(st.floats(0.0, 0.38))
def test_an_ordinary_text_is_reciprocal_and_sure(falsehood: float) -> None:
    """Balance above 0.5, indeterminacy at most a quarter."""
    assert assessed(falsehood).label is Label.RECIPROCAL
    assert indeterminacy_of(falsehood) <= 0.26


@given(st.floats(0.46, 0.6))
def test_an_undecided_text_is_borderline(falsehood: float) -> None:
    """Neither side of the decision."""
    assert assessed(falsehood).label is Label.BORDERLINE


@given(st.floats(0.65, 1.0))
def test_a_detection_breaks_the_circuit(falsehood: float) -> None:
    """Role confusion, balance -1."""
    found = assessed(falsehood).exchange
    assert found.balance == -1.0
    assert TrustViolation.ROLE_CONFUSION in found.trust.violations


def test_indeterminacy_peaks_at_the_decision() -> None:
    """There the judge is undecided; far from it, it is sure."""
    assert indeterminacy_of(DECISION) >= INDETERMINATE_FROM
    assert indeterminacy_of(0.05) < 0.15
    assert indeterminacy_of(0.98) < 0.15


def test_what_could_not_be_read_is_undecided() -> None:
    """Unknown vocabulary or a cut text is caution, not safety."""
    assert indeterminacy_of(0.02, familiarity=0.0) >= INDETERMINATE_FROM
    assert indeterminacy_of(0.02, is_truncated=True) >= INDETERMINATE_FROM


@given(shares, shares)
def test_two_grounds_weigh_at_least_as_much_as_either(one: float, other: float) -> None:
    """And no more than certainty."""
    assert max(one, other) - 1e-9 <= noisy_or((one, other)) <= 1.0
    assert noisy_or((one, 0.0)) == pytest.approx(one)
