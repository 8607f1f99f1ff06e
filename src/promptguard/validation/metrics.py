"""Measures of a ranking and of a decision on plain arrays, and their bootstrap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from promptguard.runs.intervals import Drawn
from promptguard.runs.report import Bin

Scores = npt.NDArray[np.float64]
BINS = 10
ROUNDS = 300


def roc_auc(attack: Scores, ordered_benign: Scores) -> float | None:
    """Return the chance that an attack scores above a benign case, ties counting half.

    `ordered_benign` must be sorted. None where one side is empty.
    """
    if not attack.size or not ordered_benign.size:
        return None
    below = np.searchsorted(ordered_benign, attack, "left")
    upto = np.searchsorted(ordered_benign, attack, "right")
    return float((below + upto).mean() / 2 / ordered_benign.size)


def threshold_at(ordered_benign: Scores, share: float) -> float:
    """Return the score that at most `share` of the sorted benign cases exceed."""
    allowed = int(share * ordered_benign.size)
    return float(ordered_benign[ordered_benign.size - 1 - allowed])


def recall_at(attack: Scores, ordered_benign: Scores, share: float) -> float | None:
    """Return the share of attacks above the threshold for a false-positive rate of `share`."""
    if not attack.size or not ordered_benign.size:
        return None
    return float((attack > threshold_at(ordered_benign, share)).mean())


def roc_points(attack: Scores, benign: Scores) -> tuple[tuple[float, float], ...]:
    """Return (false-positive rate, recall) from (0, 0) to (1, 1), one point per distinct score."""
    if not attack.size or not benign.size:
        return ()
    scores = np.concatenate([attack, benign])
    is_attack = np.concatenate([np.ones(attack.size), np.zeros(benign.size)])
    order = np.argsort(-scores, kind="stable")
    # No threshold separates cases of the same score.
    last_of_tie = np.append(np.diff(scores[order]) != 0, True)
    hits = np.cumsum(is_attack[order])[last_of_tie]
    alarms = np.cumsum(1 - is_attack[order])[last_of_tie]
    points = zip(alarms / benign.size, hits / attack.size, strict=True)
    return ((0.0, 0.0), *((float(x), float(y)) for x, y in points))


def reliability(
    scores: Scores, is_attack: npt.NDArray[np.bool_], bins: int = BINS
) -> tuple[Bin, ...]:
    """Return the filled bins of equal width over [0,1]."""
    # A score of exactly 1 belongs to the last bin.
    place = np.minimum((scores * bins).astype(int), bins - 1)
    found = []
    for number in range(bins):
        inside = place == number
        if inside.any():
            found.append(
                Bin(
                    low=number / bins,
                    high=(number + 1) / bins,
                    count=int(inside.sum()),
                    mean_score=float(scores[inside].mean()),
                    attack_share=float(is_attack[inside].mean()),
                )
            )
    return tuple(found)


def calibration_error(bins: tuple[Bin, ...]) -> float | None:
    """Return the mean distance between predicted risk and observed rate, by size of bin."""
    total = sum(each.count for each in bins)
    if not total:
        return None
    return sum(each.count * abs(each.mean_score - each.attack_share) for each in bins) / total


def percentile(values: Scores, share: float) -> float | None:
    """Return the value that `share` of the values do not exceed; None without values."""
    return float(np.quantile(values, share)) if values.size else None


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
