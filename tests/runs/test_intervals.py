"""Confidence intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.runs.intervals import cluster_bootstrap, measure, share_of, wilson


@given(st.integers(0, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_and_stays_in_bounds(counts) -> None:
    """The interval is within [0,1] and around the share."""
    hits, n = counts
    low, high = wilson(hits, n)
    assert 0.0 <= low <= high <= 1.0
    if n:
        assert low <= hits / n <= high


def test_wilson_agrees_with_a_known_value() -> None:
    """15 of 50, from the textbook formula."""
    assert wilson(15, 50) == pytest.approx((0.1910, 0.4375), abs=1e-4)


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=8), min_size=1, max_size=8))
def test_the_bootstrap_stays_in_bounds_and_repeats(groups) -> None:
    """Seeded: the same data give the same interval."""
    low, high = cluster_bootstrap(groups, seed=1, rounds=100)
    assert 0.0 <= low <= high <= 1.0
    assert (low, high) == cluster_bootstrap(groups, seed=1, rounds=100)


@pytest.mark.parametrize("groups", [[[True, False, False]], [[False] * 5, [False] * 3]])
def test_what_never_varies_when_drawn_again_is_still_uncertain(groups: list[list[bool]]) -> None:
    """One topic alone, or none with a contradiction, does not settle the share."""
    hits, n = sum(map(sum, groups)), sum(map(len, groups))
    assert cluster_bootstrap(groups, seed=1) == wilson(hits, n)


def test_the_bootstrap_knows_when_there_is_no_data() -> None:
    """Nothing is known, so everything is possible."""
    assert cluster_bootstrap([[]], seed=1) == (0.0, 1.0)


def test_a_value_that_never_varies_has_no_interval() -> None:
    """An AUC of 1 on five records is not known to be 1."""
    assert measure(1.0, np.ones(100)).low is None
    assert measure(0.5, np.linspace(0, 1, 100)).low == pytest.approx(0.025, abs=1e-3)


def test_a_share_of_none_or_all_is_still_uncertain() -> None:
    """No false alarm among twenty leaves room for some among the next."""
    none = share_of(0, 20, np.zeros(100), scale=1000.0)
    assert none.value == none.low == 0.0
    assert none.high == pytest.approx(1000 * wilson(0, 20)[1])
    assert share_of(20, 20, np.full(100, 20.0)).low == pytest.approx(wilson(20, 20)[0])
    assert share_of(0, 0, np.zeros(0)).value is None
    assert share_of(5, 10, np.array([4.0, 5.0, 6.0])).low == pytest.approx(0.405)
