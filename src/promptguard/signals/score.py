"""Numbers within [0,1]: held there, and combined."""

from __future__ import annotations

import math
from collections.abc import Iterable


def clipped(value: float) -> float:
    """Return `value` held within [0,1]; what is no number is 0."""
    return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0


def either(values: Iterable[float]) -> float:
    """Return the chance that at least one of several independent things holds."""
    none = 1.0
    for value in values:
        none *= 1.0 - clipped(value)
    return 1.0 - none
