"""Confidence intervals: Wilson's for shares, and bootstrap intervals from redrawn values."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Z95 = 1.959963984540054
TAIL = 2.5

Drawn = tuple[float | None, npt.NDArray[np.float64]]
"""A value and what it would have been in each round of a bootstrap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A value with its 95 % interval; all None where there is nothing to measure."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


def measure(value: float | None, draws: npt.NDArray[np.float64]) -> Measure:
    """Return a value with the interval that its redrawn values span.

    Values that never vary when drawn again (every attack above every benign case) say nothing
    of the uncertainty, so there is no interval then.
    """
    # A round that drew no case of the group has no value.
    usable = draws[np.isfinite(draws)]
    if value is None or not usable.size:
        return Measure(value=value)
    low, high = np.percentile(usable, [TAIL, 100 - TAIL])
    if low == high:
        return Measure(value=value)
    return Measure(value=value, low=float(low), high=float(high))


def share_of(
    hits: int, n: int, drawn_hits: npt.NDArray[np.float64], *, scale: float = 1.0
) -> Measure:
    """Return the share of `hits` in `n`, times `scale`, with its interval.

    Where none or all hit, drawing again gives the same each time; Wilson's interval holds there.
    """
    if not n:
        return Measure()
    if hits in (0, n):
        low, high = wilson(hits, n)
        return Measure(value=scale * hits / n, low=scale * low, high=scale * high)
    return measure(scale * hits / n, scale * drawn_hits / n)


def macro(parts: Sequence[Drawn]) -> Measure:
    """Return the mean over groups, each counting the same, with its interval."""
    known = [(value, draws) for value, draws in parts if value is not None]
    if not known:
        return Measure()
    return measure(
        float(np.mean([value for value, _ in known])),
        np.mean([draws for _, draws in known], axis=0),
    )


def wilson(hits: int, n: int, *, z: float = Z95) -> tuple[float, float]:
    """Return Wilson's interval for a share of `hits` in `n`; (0, 1) where n is 0."""
    if n == 0:
        return 0.0, 1.0
    share, square = hits / n, z * z
    centre = (share + square / (2 * n)) / (1 + square / n)
    half = z / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    # Rounding would leave the bound slightly off 0, and likewise off 1.
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == n else min(1.0, centre + half)
    return low, high


def cluster_bootstrap(
    groups: Sequence[Sequence[bool]], *, seed: int, rounds: int = 2000, level: float = 0.95
) -> tuple[float, float]:
    """Return a bootstrap interval for the overall share, drawing whole groups.

    Members of a group are alike (conversations on one topic), so they are drawn together.
    Where drawing again gives the same each time, as with one group, Wilson's interval holds.
    (0, 1) without data.
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
    low, high = shares[round(tail * last)], shares[round((1 - tail) * last)]
    if low == high:
        return wilson(sum(hits for hits, _ in filled), sum(n for _, n in filled))
    return low, high
