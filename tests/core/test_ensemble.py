"""Merge strategies: what each gives, and what holds for all."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.core.ensemble import MERGES, merge
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.errors import ConfigError

unit = st.floats(0, 1)
values = st.builds(Neutrosophic, unit, unit, unit)
names = st.text("abcdef", min_size=1, max_size=3)
evaluations = st.dictionaries(names, values, min_size=1, max_size=6)
strategies = st.sampled_from(MERGES.names())


def weights_for(found: dict[str, Neutrosophic]) -> dict[str, float]:
    return {name: 1.0 + len(name) for name in found}


def test_the_shipped_strategies() -> None:
    """The four of the specification, the default first."""
    assert MERGES.names()[:4] == ("max_falsehood", "average", "voting", "weighted")


TWO = {"a": Neutrosophic(0.8, 0.1, 0.2), "b": Neutrosophic(0.2, 0.5, 0.9)}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("max_falsehood", (0.2, 0.5, 0.9)),
        ("average", (0.5, 0.3, 0.55)),
        ("voting", (0.5, 0.3, 0.9)),
        ("weighted", (0.65, 0.2, 0.375)),
    ],
)
def test_what_each_strategy_makes_of_two_evaluations(
    strategy: str, expected: tuple[float, float, float]
) -> None:
    """One of two is half, and half carries a vote."""
    merged = merge(strategy, TWO, {"a": 3.0, "b": 1.0})
    assert merged.as_tuple() == pytest.approx(expected)


def test_a_vote_below_half_is_not_carried() -> None:
    """One of three over 0.6 leaves the mean."""
    three = {**TWO, "c": Neutrosophic(0.8, 0.3, 0.1)}
    assert merge("voting", three).falsehood == pytest.approx(0.4)


def test_exactly_the_voting_bound_is_no_vote() -> None:
    """F = 0.6 is not above 0.6."""
    two = {"a": Neutrosophic(0, 0, 0.6), "b": Neutrosophic(0, 0, 0.0)}
    assert merge("voting", two).falsehood == pytest.approx(0.3)


@given(strategies, evaluations, st.randoms(use_true_random=False))
def test_order_does_not_matter(strategy: str, found: dict[str, Neutrosophic], rng) -> None:
    """Merging is permutation-invariant, to the last digit."""
    shuffled = list(found.items())
    rng.shuffle(shuffled)
    weights = weights_for(found)
    assert merge(strategy, found, weights) == merge(strategy, dict(shuffled), weights)


@given(strategies, evaluations)
def test_merging_stays_within_its_members(strategy: str, found: dict[str, Neutrosophic]) -> None:
    """Every component lies between the least and the greatest."""
    merged = merge(strategy, found, weights_for(found)).as_tuple()
    for component, numbers in enumerate(
        zip(*(value.as_tuple() for value in found.values()), strict=True)
    ):
        assert min(numbers) <= merged[component] <= max(numbers)


@given(strategies, values)
def test_one_evaluation_is_left_as_it_is(strategy: str, value: Neutrosophic) -> None:
    """With N = 1 every strategy is the identity."""
    assert merge(strategy, {"a": value}, {"a": 0.3}) == value


@given(evaluations)
def test_max_falsehood_is_never_below_a_member(found: dict[str, Neutrosophic]) -> None:
    """What one evaluation finds cannot be outvoted."""
    merged = merge("max_falsehood", found)
    assert all(merged.falsehood >= value.falsehood for value in found.values())
    assert all(merged.truth <= value.truth for value in found.values())
    assert all(merged.indeterminacy >= value.indeterminacy for value in found.values())


@given(evaluations)
def test_voting_lies_between_average_and_max_falsehood(found: dict[str, Neutrosophic]) -> None:
    """Its falsehood is one of the two."""
    either = {merge("average", found).falsehood, merge("max_falsehood", found).falsehood}
    assert merge("voting", found).falsehood in either


@pytest.mark.parametrize(
    "weights",
    [{}, {"a": 1.0}, {"a": 0.0, "b": 0.0}, {"a": -1.0, "b": 2.0}, {"a": math.nan, "b": 1.0}],
)
def test_unusable_weights_are_refused(weights: dict[str, float]) -> None:
    """Missing, all zero, negative and not-a-number weights are errors."""
    with pytest.raises(ConfigError):
        merge("weighted", TWO, weights)


def test_very_great_weights_do_not_overflow() -> None:
    """The greatest floats are weights like any other."""
    merged = merge("weighted", TWO, {"a": 1.7e308, "b": 1.7e308})
    assert merged.falsehood == pytest.approx(0.55)


def test_an_unknown_strategy_names_the_known_ones() -> None:
    """The error says what could have been meant."""
    with pytest.raises(ConfigError, match=r"median.*average.*max_falsehood.*voting.*weighted"):
        merge("median", TWO)


def test_nothing_cannot_be_merged() -> None:
    """An empty ensemble is an error, not a verdict."""
    with pytest.raises(ConfigError, match="nothing to merge"):
        merge("average", {})
