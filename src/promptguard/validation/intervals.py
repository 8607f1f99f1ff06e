"""Bootstrap intervals: what the measures would have been on data drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from promptguard.validation.metrics import Scores, recall_at, roc_auc, threshold_at

ROUNDS = 300
TAIL = 2.5

Drawn = tuple[float | None, Scores]
"""A value and what it would have been in each round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A value with its 95 % interval; all None where there is nothing to measure."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


def measure(value: float | None, draws: npt.NDArray[np.float64]) -> Measure:
    """Return a value with the interval that its redrawn values span."""
    usable = draws[np.isfinite(draws)]
    if value is None or not usable.size:
        return Measure(value=value)
    low, high = np.percentile(usable, [TAIL, 100 - TAIL])
    return Measure(value=value, low=float(low), high=float(high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """How attacks rank against the benign cases."""

    auc: Drawn
    recall_at_1: Drawn
    recall_at_5: Drawn


class Redrawn:
    """Benign scores drawn again `rounds` times, shared by every group that is held to them."""

    def __init__(self, benign: Scores, *, seed: int, rounds: int = ROUNDS) -> None:
        self.rounds = rounds
        self.benign = np.sort(benign)
        self._rng = np.random.default_rng(seed)
        again = [
            np.sort(self._rng.choice(benign, benign.size))
            for _ in range(rounds * bool(benign.size))
        ]
        self._again = [
            (drawn, threshold_at(drawn, 0.01), threshold_at(drawn, 0.05)) for drawn in again
        ]

    def ranking(self, attack: Scores) -> Ranking:
        """Rank attacks against the benign scores, and again in each round."""
        rounds = np.full((len(self._again), 3), np.nan)
        for number, (benign, at_1, at_5) in enumerate(self._again if attack.size else ()):
            drawn = self._rng.choice(attack, attack.size)
            rounds[number] = roc_auc(drawn, benign), (drawn > at_1).mean(), (drawn > at_5).mean()
        return Ranking(
            auc=(roc_auc(attack, self.benign), rounds[:, 0]),
            recall_at_1=(recall_at(attack, self.benign, 0.01), rounds[:, 1]),
            recall_at_5=(recall_at(attack, self.benign, 0.05), rounds[:, 2]),
        )

    def hits(self, count: int, n: int) -> Scores:
        """Return how many of `n` would have been hit: drawing a share again is binomial."""
        if not n:
            return np.zeros(self.rounds)
        return self._rng.binomial(n, count / n, self.rounds).astype(float)


def macro(parts: Sequence[Drawn]) -> Measure:
    """Return the mean over groups, each counting the same, with its interval."""
    known = [(value, draws) for value, draws in parts if value is not None]
    if not known:
        return Measure()
    return measure(
        float(np.mean([value for value, _ in known])),
        np.mean([draws for _, draws in known], axis=0),
    )
