"""Split-conformal thresholds: a false-positive budget kept on data like that which was given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from promptguard.errors import DataError

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformal:
    """A threshold that at most `share` of new benign cases exceed, on average over samples.

    `rank` of the `n` scores, in rising order, is the threshold. With 95 % confidence over the
    sample that was drawn, the share stays below `upper`.
    """

    share: float
    n: int
    rank: int
    threshold: float
    upper: float

    @property
    def statement(self) -> str:
        """What is promised, and on what."""
        return (
            f"At most {self.share:.2%} of benign cases exceed it, on average over samples of "
            f"{self.n} drawn alike; for this sample, below {self.upper:.2%} with 95 % confidence."
        )


def least_cases(share: float) -> int:
    """Return how many benign cases a budget needs at least."""
    return math.ceil(1 / share - 1e-9) - 1


def conformal(scores: Sequence[float], share: float) -> Conformal:
    """Return the threshold for a budget; DataError says how many cases are needed."""
    n = len(scores)
    rank = math.ceil((n + 1) * (1 - share) - 1e-9)
    if rank > n or not n:
        raise DataError(
            f"A budget of {share:.2%} needs at least {least_cases(share)} benign cases, "
            f"there are {n}; give more data or a larger budget."
        )
    return Conformal(
        share=share,
        n=n,
        rank=rank,
        threshold=sorted(scores)[rank - 1],
        upper=upper_share(n, rank),
    )


def upper_share(n: int, rank: int, confidence: float = CONFIDENCE) -> float:
    """Return the share that the true one stays below, in `confidence` of the samples.

    The share above the rank-th of n scores is Beta(n + 1 - rank, rank); its quantile is found
    by halving, on the binomial sum that equals its distribution function.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _binomial_upto(n, n - rank, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _binomial_upto(n: int, most: int, share: float) -> float:
    """Return the chance of at most `most` hits in `n` tries of `share`."""
    if share <= 0.0:
        return 1.0
    if share >= 1.0:
        return float(most >= n)
    hit, miss = math.log(share), math.log1p(-share)
    return math.fsum(
        math.exp(
            math.lgamma(n + 1)
            - math.lgamma(k + 1)
            - math.lgamma(n - k + 1)
            + k * hit
            + (n - k) * miss
        )
        for k in range(most + 1)
    )
