"""From logits to probabilities: how much each reader counts, fitted on data they did not see."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict


class Blend(BaseModel):
    """Log-odds = quick · its logit + thorough · its logit + shift."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    quick: float
    thorough: float = 0.0
    shift: float = 0.0

    def probability(self, quick: float, thorough: float = 0.0) -> float:
        """Return the calibrated probability of the readers' logits."""
        return sigmoid(self.quick * quick + self.thorough * thorough + self.shift)

    def probabilities(self, quick: Iterable[float]) -> list[float]:
        """Return the calibrated probability of each of the quick reader's logits."""
        return [self.probability(float(logit)) for logit in quick]


class Calibration(BaseModel):
    """One output's blend where the quick reader stands alone, and where both were asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    alone: Blend
    both: Blend


def calibrated(
    calibrations: Sequence[Calibration], quick: Iterable[float], thorough: Iterable[float] | None
) -> tuple[float, ...]:
    """Return the probabilities of several outputs; `thorough` is None where it was not asked."""
    if thorough is None:
        pairs = zip(calibrations, quick, strict=False)
        return tuple(each.alone.probability(float(logit)) for each, logit in pairs)
    both = zip(calibrations, quick, thorough, strict=False)
    return tuple(each.both.probability(float(one), float(two)) for each, one, two in both)


def sigmoid(value: float) -> float:
    """Return 1 / (1 + e^-value) without overflow."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    grown = math.exp(value)
    return grown / (1.0 + grown)


def log_odds(probability: float) -> float:
    """Return the log-odds of a probability, held within finite bounds."""
    kept = min(max(probability, 1e-6), 1 - 1e-6)
    return math.log(kept / (1 - kept))
