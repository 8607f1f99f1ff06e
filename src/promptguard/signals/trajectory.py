"""Signal `trajectory`: does risk climb from turn to turn, and in what shape?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median

from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS, clipped, read_tuning
from promptguard.state import RECENT_TURNS
from promptguard.verdict import SignalScore

_MIN_TURNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tuning:
    least_step: float
    high: float
    persistent_turns: int
    persistent_weight: float
    spike_weight: float
    spike_calm: float
    swing: float
    swing_turns: int
    oscillating_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a run of risks looks: `name` of what says most, and the numbers behind it."""

    name: str
    score: float
    slope: float
    rise: float
    increases: float


@SIGNALS.register("trajectory")
def trajectory(ctx: TurnContext) -> SignalScore:
    """Return the strongest of: climb (fitted rise times share of increases) and three shapes."""
    shape = shape_of(turn_risks(ctx))
    reason = f"{shape.name}: fitted rise {shape.rise:+.2f}, {shape.increases:.0%} increases"
    parts = {"slope": shape.slope, "rise": shape.rise, "increases": shape.increases}
    return SignalScore(name="trajectory", score=shape.score, reason=reason, parts=parts)


def turn_risks(ctx: TurnContext) -> tuple[float, ...]:
    """Return the risks of the last messages, the current one last, each taken alone."""
    earlier = ctx.state.recent[-(RECENT_TURNS - 1) :]
    return (*(turn.message_risk for turn in earlier), ctx.message_risk)


def shape_of(risks: Sequence[float]) -> Shape:
    """Return the shape of a run of risks in [0,1]; nothing is said of fewer than 3."""
    if len(risks) < _MIN_TURNS:
        return Shape(name="short", score=0.0, slope=0.0, rise=0.0, increases=0.0)
    tuning = _tuning()
    slope = least_squares_slope(risks)
    rise = slope * (len(risks) - 1)
    steps = [b - a for a, b in pairwise(risks)]
    increases = sum(step > tuning.least_step for step in steps) / len(steps)
    score, name = max(
        (clipped(rise * increases), "climbing"),
        (tuning.persistent_weight * _persistent(risks, tuning), "persistent"),
        (tuning.oscillating_weight * _oscillating(steps, tuning), "oscillating"),
        (tuning.spike_weight * _spike(risks, tuning), "spike"),
    )
    return Shape(name=name, score=score, slope=slope, rise=rise, increases=increases)


def least_squares_slope(values: Sequence[float]) -> float:
    """Return the slope per step of the least-squares line; 0 for fewer than two values."""
    n = len(values)
    if n < 2:
        return 0.0
    middle = (n - 1) / 2
    spread = n * (n * n - 1) / 12
    return sum((x - middle) * value for x, value in enumerate(values)) / spread


def _persistent(risks: Sequence[float], tuning: _Tuning) -> float:
    """Return the level that the last turns never fell below, where it is high."""
    if len(risks) < tuning.persistent_turns:
        return 0.0
    level = min(risks[-tuning.persistent_turns :])
    return level if level >= tuning.high else 0.0


def _spike(risks: Sequence[float], tuning: _Tuning) -> float:
    """Return how far the current turn stands out of a calm past."""
    usual = median(risks[:-1])
    return risks[-1] - usual if risks[-1] >= tuning.high and usual <= tuning.spike_calm else 0.0


def _oscillating(steps: Sequence[float], tuning: _Tuning) -> float:
    """Return the share of wide swings that reverse the one before, where there are enough."""
    wide = [step for step in steps if abs(step) >= tuning.swing]
    if len(wide) < tuning.swing_turns:
        return 0.0
    turns = sum(a * b < 0 for a, b in pairwise(wide))
    return turns / (len(steps) - 1)


@cache
def _tuning() -> _Tuning:
    return read_tuning("trajectory", _Tuning)
