"""The trajectory signal sees where risk is going."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turn_contexts import current_turn, past_turn

from promptguard.protocols import SignalScore
from promptguard.signals.trajectory import least_squares_slope, shape_of, trajectory

RISKS = st.lists(st.floats(0.0, 1.0), max_size=12)


def _after(*risks: float) -> SignalScore:
    past = [past_turn(turn=turn, risk=risk) for turn, risk in enumerate(risks[:-1])]
    return trajectory(current_turn(past=past, risk=risks[-1]))


def test_a_steady_climb_is_named_and_scores_its_rise() -> None:
    """From nothing to certainty without a step back is the whole score."""
    result = _after(0.0, 0.25, 0.5, 0.75, 1.0)
    assert result.score == pytest.approx(1.0)
    assert result.reason.startswith("climbing")
    assert result.parts["slope"] == pytest.approx(0.25)


def test_a_slow_climb_counts_like_a_quick_one() -> None:
    """The rise over the window counts, however many turns it took."""
    slow = _after(*(turn / 9 for turn in range(10))).score
    assert slow == pytest.approx(_after(0.0, 0.5, 1.0).score)


@pytest.mark.parametrize("risks", [(0.9,), (0.1, 0.9)])
def test_fewer_than_three_turns_say_nothing(risks: tuple[float, ...]) -> None:
    """Two points are no trend."""
    assert _after(*risks).score == 0.0


@pytest.mark.parametrize(
    ("risks", "name"),
    [
        ((0.7, 0.7, 0.7, 0.7), "persistent"),
        ((0.05, 0.0, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.8), "spike"),
        ((0.8, 0.1, 0.8, 0.1, 0.8, 0.1), "oscillating"),
    ],
)
def test_shapes_are_named(risks: tuple[float, ...], name: str) -> None:
    """What does not climb but is risky all the same is named by its shape."""
    result = _after(*risks)
    assert result.score > 0.1
    assert result.reason.startswith(name)


def test_falling_or_calm_risk_says_nothing() -> None:
    """Neither a fall nor small talk is an escalation."""
    assert _after(0.9, 0.4, 0.1).score == 0.0
    assert _after(*([0.03, 0.01, 0.02] * 3)).score == 0.0


def test_order_matters() -> None:
    """The same risks in another order score differently."""
    assert _after(0.1, 0.3, 0.6, 0.9).score > _after(0.6, 0.1, 0.9, 0.3).score


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=12))
def test_the_slope_is_the_least_squares_slope(risks: list[float]) -> None:
    """It agrees with a textbook fit."""
    expected = np.polyfit(range(len(risks)), risks, 1)[0]
    assert least_squares_slope(risks) == pytest.approx(expected, abs=1e-6)


@given(RISKS)
def test_scores_stay_within_bounds(risks: list[float]) -> None:
    """No run of risks leaves [0,1]."""
    assert 0.0 <= shape_of(risks).score <= 1.0


@given(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=9))
def test_only_the_last_ten_turns_count(risks: list[float]) -> None:
    """What lies before the window changes nothing."""
    window = ([0.2] * 10 + risks)[-10:]
    assert _after(0.9, 0.9, *window).score == _after(*window).score
