"""How a signal's word is formed so that it keeps its contract."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from promptguard.verdict import SignalScore


def clipped(value: float) -> float:
    """Return `value` held within [0,1]; what is no number is 0."""
    return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0


def scored(
    name: str, value: float, reason: str = "", parts: Mapping[str, float] | None = None
) -> SignalScore:
    """Return a score within [0,1], with a reason only where there is something to explain."""
    score = clipped(value)
    return SignalScore(name=name, score=score, reason=reason if score else "", parts=parts or {})


def either(values: Iterable[float]) -> float:
    """Return the chance that at least one of several independent things holds."""
    none = 1.0
    for value in values:
        none *= 1.0 - clipped(value)
    return 1.0 - none
