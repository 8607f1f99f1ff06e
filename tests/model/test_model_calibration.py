"""From logits to probabilities."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.model.calibration import Platt, sigmoid

logits = st.floats(-1e6, 1e6)


@given(logits)
def test_a_probability_stays_in_bounds_for_any_logit(logit: float) -> None:
    """Also where e^x would overflow."""
    assert 0.0 <= sigmoid(logit) <= 1.0
    assert sigmoid(logit) + sigmoid(-logit) == pytest.approx(1.0)


@given(logits, logits, st.floats(0.05, 20), st.floats(-10, 10))
def test_calibration_keeps_the_order(one: float, other: float, scale: float, shift: float) -> None:
    """A higher logit never gets a lower probability."""
    low, high = sorted((one, other))
    platt = Platt(scale, shift)
    assert platt.probability(low) <= platt.probability(high)


def test_scale_and_shift_mean_what_they_say() -> None:
    """sigmoid(scale · logit + shift)."""
    assert Platt(2.0, -1.0).probability(0.5) == 0.5
    assert Platt().probability(math.log(3)) == pytest.approx(0.75)
