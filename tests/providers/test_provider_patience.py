"""How long is waited before a call is repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.providers.patience import delay_s, is_worth_repeating, retry_after_of

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
    assert all(is_worth_repeating(status) for status in (408, 429, 500, 502, 503, 504, 529))
    assert not any(is_worth_repeating(status) for status in (200, 301, 400, 401, 404, 422))
