"""From logits to probabilities."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.model.calibration import Blend, log_odds, sigmoid

logits = st.floats(-1e6, 1e6)


@given(logits)
def test_a_probability_stays_in_bounds_for_any_logit(logit: float) -> None:
    """Also where e^x would overflow."""
    assert 0.0 <= sigmoid(logit) <= 1.0
    assert sigmoid(logit) + sigmoid(-logit) == pytest.approx(1.0)


@given(logits, logits, st.floats(0.05, 20), st.floats(-10, 10))
def test_calibration_keeps_the_order(one: float, other: float, scale: float, shift: float) -> None:
    """A higher logit never gets a lower probability, whichever reader says it."""
    low, high = sorted((one, other))
    alone = Blend(quick=scale, shift=shift)
    assert alone.probability(low) <= alone.probability(high)
    both = Blend(quick=scale, thorough=scale, shift=shift)
    assert both.probability(0.0, low) <= both.probability(0.0, high)


def test_scale_and_shift_mean_what_they_say() -> None:
    """sigmoid(quick · its logit + thorough · its logit + shift)."""
    assert Blend(quick=2.0, shift=-1.0).probability(0.5) == 0.5
    assert Blend(quick=1.0, thorough=2.0).probability(1.0, -0.5) == 0.5
    assert Blend(quick=1.0).probability(math.log(3)) == pytest.approx(0.75)


@given(st.floats(0.001, 0.999))
def test_log_odds_undo_the_probability(probability: float) -> None:
    """Within the bounds that keep them finite."""
    assert sigmoid(log_odds(probability)) == pytest.approx(probability)
    assert math.isfinite(log_odds(0.0))
    assert math.isfinite(log_odds(1.0))
