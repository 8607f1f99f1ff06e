"""Backoff: how long to wait before a retry, and when to stop calling a failing endpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

_FIRST_S = 0.5
_LONGEST_S = 8.0


class CircuitBreaker:
    """Opens after `failures` in a row; after `cooldown_s` it lets one trial call through.

    Every `enter` that returned True is followed by one of `succeed`, `fail` and `withdraw`.
    """

    def __init__(self, *, failures: int, cooldown_s: float) -> None:
        self._limit = failures
        self._cooldown_s = cooldown_s
        self._failures = 0
        self._opened_at: float | None = None
        self._is_probing = False

    def enter(self, now: float) -> bool:
        """Return whether a call may be made; where the cooldown is over, only one may."""
        if self._opened_at is None:
            return True
        if self._is_probing or self.remaining_s(now) > 0:
            return False
        self._is_probing = True
        return True

    def remaining_s(self, now: float) -> float:
        """Return how long the circuit stays open."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self._cooldown_s - now)

    def succeed(self) -> None:
        """Close the circuit."""
        self._failures, self._opened_at, self._is_probing = 0, None, False

    def fail(self, now: float) -> None:
        """Count a failure; the last one allowed, or a failed trial call, opens the circuit."""
        self._failures += 1
        if self._opened_at is not None or self._failures >= self._limit:
            self._opened_at = now
        self._is_probing = False

    def withdraw(self) -> None:
        """Count nothing: the caller was cancelled, the endpoint may be well."""
        self._is_probing = False


def is_retryable(status: int) -> bool:
    """Return whether a retry may get a better answer than this status."""
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
