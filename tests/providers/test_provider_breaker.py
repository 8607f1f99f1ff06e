"""The circuit breaker."""

from __future__ import annotations

from promptguard.providers.breaker import Breaker


def opened() -> Breaker:
    breaker = Breaker(failures=2, cooldown_s=10)
    for _ in range(2):
        assert breaker.enter(0)
        breaker.fail(0)
    return breaker


def test_it_opens_after_failures_in_a_row() -> None:
    """A success in between starts the count anew."""
    breaker = Breaker(failures=2, cooldown_s=10)
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
