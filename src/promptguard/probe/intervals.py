"""Confidence intervals for shares."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

Z95 = 1.959963984540054


def wilson(hits: int, n: int, *, z: float = Z95) -> tuple[float, float]:
    """Return Wilson's interval for a share of `hits` in `n`; (0, 1) where n is 0."""
    if n == 0:
        return 0.0, 1.0
    share, square = hits / n, z * z
    centre = (share + square / (2 * n)) / (1 + square / n)
    half = z / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == n else min(1.0, centre + half)
    return low, high


def cluster_bootstrap(
    groups: Sequence[Sequence[bool]], *, seed: int, rounds: int = 2000, level: float = 0.95
) -> tuple[float, float]:
    """Return a bootstrap interval for the overall share, drawing whole groups.

    Conversations on one topic are alike, so they are drawn together. (0, 1) without data.
    """
    filled = [(sum(group), len(group)) for group in groups if group]
    if not filled:
        return 0.0, 1.0
    draw = random.Random(seed)
    shares = []
    for _ in range(rounds):
        picked = draw.choices(filled, k=len(filled))
        shares.append(sum(hits for hits, _ in picked) / sum(n for _, n in picked))
    shares.sort()
    tail = (1 - level) / 2
    last = len(shares) - 1
    return shares[round(tail * last)], shares[round((1 - tail) * last)]
