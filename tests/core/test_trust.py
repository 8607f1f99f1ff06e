"""Trust between the layers of a prompt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.core.layers import Layer, LayerPriority, MultiNeutrosophicPrompt
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.core.trust import ContradictionKind, TrustViolation, contradiction_of, trust_of

unit = st.floats(0, 1)
values = st.builds(Neutrosophic, unit, unit, unit)


def layer(
    value: tuple[float, float, float] | Neutrosophic,
    priority: LayerPriority = LayerPriority.USER,
    *,
    chars: int = 10,
    evaluations: tuple[Neutrosophic, ...] = (),
) -> Layer:
    merged = value if isinstance(value, Neutrosophic) else Neutrosophic(*value)
    return Layer(
        priority=priority, name=priority.name, chars=chars, evaluations=evaluations, merged=merged
    )


def two(system: tuple[float, float, float], user: tuple[float, float, float]):
    return MultiNeutrosophicPrompt([layer(system, LayerPriority.SYSTEM), layer(user)])


def test_one_layer_is_trusted_wholly() -> None:
    """Without a pair, validity, resolution and coherence are 1."""
    trust = trust_of(MultiNeutrosophicPrompt([layer((0.5, 0.5, 0.1))]))
    assert (trust.validity, trust.resolution, trust.coherence, trust.strength) == (1, 1, 1, 1)


def test_the_parts_of_two_layers_follow_the_formulas() -> None:
    """V = (1-F)(0.5+I) and C = min(T(1-F), T of the lower)."""
    trust = trust_of(two((0.8, 0.3, 0.1), (0.6, 0.2, 0.2)))
    assert trust.validity == pytest.approx(0.9 * 0.8)
    assert trust.coherence == pytest.approx(0.6)
    assert trust.strength == pytest.approx((0.72 + 1 + 0.6) / 3)


def test_strength_is_clipped_to_one() -> None:
    """A very undecided, harmless system layer does not give more than full trust."""
    assert trust_of(two((1.0, 1.0, 0.0), (1.0, 0.0, 0.0))).strength == 1.0


@pytest.mark.parametrize(("falsehood", "is_found"), [(0.65, False), (0.66, True)])
def test_role_confusion_starts_above_its_bound(falsehood: float, is_found: bool) -> None:
    """F = 0.65 is not yet role confusion; above it trust is cut to three tenths."""
    trust = trust_of(two((0.8, 0.3, 0.1), (0.5, 0.2, falsehood)))
    assert (TrustViolation.ROLE_CONFUSION in trust.violations) is is_found
    whole = (0.72 + 1 + 0.5) / 3
    assert trust.strength == pytest.approx(whole * (0.3 if is_found else 1))


@pytest.mark.parametrize(
    ("chars", "falsehood", "is_found"),
    [(5000, 0.6, False), (5001, 0.6, True), (5001, 0.5, False)],
)
def test_context_saturation_needs_length_and_falsehood(
    chars: int, falsehood: float, is_found: bool
) -> None:
    """Longer than 5000 characters and F above 0.5, then trust is halved."""
    prompt = MultiNeutrosophicPrompt([layer((0.5, 0.2, falsehood), chars=chars)])
    trust = trust_of(prompt)
    assert (trust.violations == (TrustViolation.CONTEXT_SATURATION,)) is is_found
    assert trust.strength == (0.5 if is_found else 1.0)


def test_direct_negation_works_both_ways() -> None:
    """A true layer against a false one, whichever is higher."""
    good, bad = layer((0.8, 0, 0)), layer((0.1, 0, 0.8))
    assert contradiction_of(good, bad) is ContradictionKind.DIRECT_NEGATION
    assert contradiction_of(bad, good) is ContradictionKind.DIRECT_NEGATION
    assert contradiction_of(good, good) is None


def test_scope_conflict_needs_truth_on_both_sides_and_disagreement() -> None:
    """Two true layers are in conflict where the evaluations of one differ widely."""
    split = (Neutrosophic(1, 0, 0), Neutrosophic(1, 0, 0), Neutrosophic(0, 0, 0))
    wide = layer((0.67, 0, 0), evaluations=split)
    plain = layer((0.7, 0, 0))
    assert contradiction_of(plain, wide) is ContradictionKind.SCOPE_CONFLICT
    assert contradiction_of(layer((0.6, 0, 0)), wide) is None


def test_resolution_counts_preserved_and_damaged_contradictions() -> None:
    """One scope conflict preserved and two negations damaged: 1/3 (1 - 0.5 · 2/3)."""
    split = (Neutrosophic(1, 0, 0), Neutrosophic(1, 0, 0), Neutrosophic(0, 0, 0))
    prompt = MultiNeutrosophicPrompt(
        [
            layer((0.8, 0, 0), LayerPriority.SYSTEM, evaluations=split),
            layer((0.8, 0, 0), LayerPriority.APPLICATION),
            layer((0.1, 0, 0.9)),
        ]
    )
    trust = trust_of(prompt)
    assert [found.kind for found in trust.contradictions] == [
        ContradictionKind.SCOPE_CONFLICT,
        ContradictionKind.DIRECT_NEGATION,
        ContradictionKind.DIRECT_NEGATION,
    ]
    assert trust.resolution == pytest.approx(1 / 3 * (1 - 0.5 * 2 / 3))


def test_a_negation_with_truth_on_both_sides_is_preserved() -> None:
    """T and F are independent, so a layer can be true and false at once."""
    assert trust_of(two((0.8, 0, 0.0), (0.7, 0, 0.8))).resolution == 1.0


@given(st.lists(st.tuples(values, st.sampled_from(LayerPriority)), min_size=1, max_size=5))
def test_strength_is_always_a_share(items: list[tuple[Neutrosophic, LayerPriority]]) -> None:
    """Whatever the layers say."""
    trust = trust_of(MultiNeutrosophicPrompt(layer(*item) for item in items))
    assert 0.0 <= trust.strength <= 1.0
    assert 0.0 <= trust.resolution <= 1.0
