"""Waiting before a retry, and the circuit breaker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.providers.backoff import (
    CircuitBreaker,
    delay_s,
    is_retryable,
    retry_after_of,
)

MONDAY = "Mon, 02 Jan 2023 10:00:00 GMT"
LATER = "Mon, 02 Jan 2023 10:00:30 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": LATER, "date": MONDAY}, 30.0),
        ({"retry-after": MONDAY, "date": LATER}, 0.0),
        ({"retry-after": LATER}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon", "date": MONDAY}, None),
    ],
)
def test_retry_after_is_read(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds or a date; nonsense is ignored."""
    assert retry_after_of(headers) == seconds


@given(
    attempt=st.integers(0, 50),
    asked=st.none() | st.floats(0, 1000),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_waits_are_bounded_and_never_shorter_than_asked(
    attempt: int, asked: float | None, chance: float
) -> None:
    """Whatever chance does, the wait lies between what was asked and a little more."""
    wait = delay_s(attempt, asked, lambda: chance)
    assert (asked or 0.0) <= wait <= (asked or 0.0) + 8.0
    assert wait > 0 or asked is not None


def test_waits_grow() -> None:
    """Each wait is longer than the one before, up to the longest."""
    waits = [delay_s(attempt, None, lambda: 0.5) for attempt in range(6)]
    assert waits[:5] == sorted(waits[:5])
    assert waits[5] == waits[4] == 6.0


def test_only_passing_failures_are_worth_repeating() -> None:
    """A refused request stays refused."""
    assert all(is_retryable(status) for status in (408, 429, 500, 502, 503, 504, 529))
    assert not any(is_retryable(status) for status in (200, 301, 400, 401, 404, 422))


def opened() -> CircuitBreaker:
    breaker = CircuitBreaker(failures=2, cooldown_s=10)
    for _ in range(2):
        assert breaker.enter(0)
        breaker.fail(0)
    return breaker


def test_it_opens_after_failures_in_a_row() -> None:
    """A success in between starts the count anew."""
    breaker = CircuitBreaker(failures=2, cooldown_s=10)
    breaker.fail(0)
    breaker.succeed()
    breaker.fail(0)
    assert breaker.enter(0)
    breaker.fail(0)
    assert not breaker.enter(0)
    assert breaker.remaining_s(4) == 6


def test_after_the_cooldown_one_call_may_try() -> None:
    """The others wait for its outcome."""
    breaker = opened()
    assert not breaker.enter(9.9)
    assert breaker.enter(10)
    assert not breaker.enter(10)
    breaker.succeed()
    assert breaker.enter(10)
    assert breaker.enter(10)


def test_a_failed_try_opens_again() -> None:
    """One failure suffices then."""
    breaker = opened()
    assert breaker.enter(10)
    breaker.fail(10)
    assert not breaker.enter(19.9)
    assert breaker.enter(20)


def test_a_withdrawn_try_lets_the_next_one_in() -> None:
    """A cancelled caller neither closes nor blocks."""
    breaker = opened()
    assert breaker.enter(10)
    breaker.withdraw()
    assert breaker.enter(10)
