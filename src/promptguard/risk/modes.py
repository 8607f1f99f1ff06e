"""Which mode a risk stands for, with hysteresis so that it does not flicker."""

from __future__ import annotations

from promptguard.risk.weights import ModeWeights
from promptguard.verdict import Mode


def mode_for(risk: float, weights: ModeWeights, previous: Mode = Mode.SAFE) -> Mode:
    """Return the mode of `risk`; a mode once entered is left only well below its start."""
    reached = Mode.SAFE
    for mode, start in weights.starts():
        bar = start - weights.hysteresis if mode <= previous else start
        if risk >= bar:
            reached = mode
    return reached
