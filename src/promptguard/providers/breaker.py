"""When a failing endpoint is left alone, and when it is tried again."""

from __future__ import annotations


class Breaker:
    """Opens after `failures` in a row; after `cooldown_s` it lets one call try.

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
        """Return how long the endpoint is still left alone."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self._cooldown_s - now)

    def succeed(self) -> None:
        """The endpoint answered: all is forgiven."""
        self._failures, self._opened_at, self._is_probing = 0, None, False

    def fail(self, now: float) -> None:
        """The endpoint failed; enough of it, or a failed try after the cooldown, opens."""
        self._failures += 1
        if self._opened_at is not None or self._failures >= self._limit:
            self._opened_at = now
        self._is_probing = False

    def withdraw(self) -> None:
        """The caller gave up, which says nothing about the endpoint."""
        self._is_probing = False
