"""From logits to probabilities: one fitted scale and shift per output."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Platt:
    """Probability = sigmoid(scale · logit + shift), fitted on data the model was not trained on."""

    scale: float = 1.0
    shift: float = 0.0

    def probability(self, logit: float) -> float:
        """Return the calibrated probability of a logit."""
        return sigmoid(self.scale * logit + self.shift)


def sigmoid(value: float) -> float:
    """Return 1 / (1 + e^-value) without overflow."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    grown = math.exp(value)
    return grown / (1.0 + grown)
