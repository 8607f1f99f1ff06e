"""Macro-averaged measures: each attack source against the pooled benign records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np


def auc(attack: np.ndarray, benign: np.ndarray) -> float:
    """Return the probability that an attack scores above a benign record, ties counting half."""
    order = np.sort(benign)
    below = np.searchsorted(order, attack, "left")
    upto = np.searchsorted(order, attack, "right")
    return float((below + upto).mean() / 2 / len(benign))


def threshold_at(benign: np.ndarray, share: float) -> float:
    """Return the score that at most `share` of the benign records exceed."""
    order = np.sort(benign)[::-1]
    return float(order[int(share * len(order))])


def macro(
    scores: Sequence[float], labels: Sequence[int], sources: Sequence[str]
) -> dict[str, float]:
    """Return AUC and recall at 1 % and 5 % of benign, averaged over attack sources."""
    attacks: dict[str, list[float]] = defaultdict(list)
    benign = []
    for score, label, source in zip(scores, labels, sources, strict=True):
        if label:
            attacks[source].append(score)
        else:
            benign.append(score)
    pool = np.array(benign)
    at1, at5 = threshold_at(pool, 0.01), threshold_at(pool, 0.05)
    arrays = [np.array(values) for values in attacks.values()]
    return {
        "auc": float(np.mean([auc(a, pool) for a in arrays])),
        "r1": float(np.mean([(a > at1).mean() for a in arrays])),
        "r5": float(np.mean([(a > at5).mean() for a in arrays])),
    }


def matched(scores: Sequence[float], labels: Sequence[int], sources: Sequence[str]) -> float:
    """Return the mean AUC within sources that hold both labels."""
    values = []
    for source in dict.fromkeys(sources):
        picked = [(s, y) for s, y, o in zip(scores, labels, sources, strict=True) if o == source]
        attack = np.array([s for s, y in picked if y])
        benign = np.array([s for s, y in picked if not y])
        if len(attack) > 20 and len(benign) > 20:
            values.append(auc(attack, benign))
    return float(np.mean(values)) if values else float("nan")
