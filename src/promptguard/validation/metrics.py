"""Measures of a ranking and of a decision, on plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]
BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Cases whose score falls between `low` and `high`: how many, what was said, what was so."""

    low: float
    high: float
    count: int
    mean_score: float
    attack_share: float


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
    last_of_tie = np.append(np.diff(scores[order]) != 0, True)
    hits = np.cumsum(is_attack[order])[last_of_tie]
    alarms = np.cumsum(1 - is_attack[order])[last_of_tie]
    points = zip(alarms / benign.size, hits / attack.size, strict=True)
    return ((0.0, 0.0), *((float(x), float(y)) for x, y in points))


def reliability(
    scores: Scores, is_attack: npt.NDArray[np.bool_], bins: int = BINS
) -> tuple[Bin, ...]:
    """Return the filled bins of equal width over [0,1]."""
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
    """Return the mean distance between what was said and what was so, by size of bin."""
    total = sum(each.count for each in bins)
    if not total:
        return None
    return sum(each.count * abs(each.mean_score - each.attack_share) for each in bins) / total


def percentile(values: Scores, share: float) -> float | None:
    """Return the value that `share` of the values do not exceed; None without values."""
    return float(np.quantile(values, share)) if values.size else None
