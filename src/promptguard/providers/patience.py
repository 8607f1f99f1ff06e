"""How long to wait before a call is repeated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

_FIRST_S = 0.5
_LONGEST_S = 8.0


def is_worth_repeating(status: int) -> bool:
    """Return whether an answer with this status may be followed by a better one."""
    return status in (408, 429) or status >= 500


def delay_s(attempt: int, retry_after_s: float | None, random: Callable[[], float]) -> float:
    """Return the wait after the attempt with this number (from 0).

    It doubles with each attempt and is spread at random, so that many clients do not come back
    at the same moment; what the endpoint asked for is never undercut.
    """
    backoff = min(_FIRST_S * 2.0**attempt, _LONGEST_S)
    if retry_after_s is None:
        return backoff * (0.5 + 0.5 * random())
    return retry_after_s + 0.5 * backoff * random()


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that `Retry-After` asks for, None where it is absent or unreadable.

    A date is read relative to the answer's own `Date`, so our clock does not matter.
    """
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        seconds = _seconds_between(headers.get("date", ""), value)
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _seconds_between(earlier: str, later: str) -> float:
    start, end = _date_of(earlier), _date_of(later)
    if start is None or end is None:
        return math.nan
    return max(0.0, (end - start).total_seconds())


def _date_of(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
