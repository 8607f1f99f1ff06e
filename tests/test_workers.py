"""Work spread over processes keeps its order and loses nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from promptguard.errors import ConfigError
from promptguard.workers import default_jobs, work_off


def double_all(items: Sequence[int]) -> list[int]:
    for item in items:
        if item == 13:
            os._exit(1)
    return [2 * item for item in items]


def open_doubler() -> object:
    return double_all


def open_nothing() -> object:
    raise ConfigError("cannot open")


def test_one_job_stays_in_this_process() -> None:
    """Results come in order, lazily, without any process."""
    drawn = []

    def items() -> Iterator[int]:
        for number in range(10):
            drawn.append(number)
            yield number

    results = work_off(open_doubler, items(), jobs=1, lost=lambda _: -1, chunk=4)
    assert next(results) == 0
    assert len(drawn) == 4
    assert list(results) == [2 * number for number in range(1, 10)]


def test_several_jobs_keep_the_order_and_isolate_a_killer() -> None:
    """An item that kills its process is lost alone; all others are done, in order."""
    found = list(work_off(open_doubler, range(40), jobs=2, lost=partial(int.__neg__), chunk=8))
    assert found == [-13 if n == 13 else 2 * n for n in range(40)]


def test_a_worker_that_cannot_open_raises_its_own_error() -> None:
    """A configuration error in a process is the caller's to see."""
    with pytest.raises(ConfigError, match="cannot open"):
        list(work_off(open_nothing, range(3), jobs=2, lost=lambda _: None))


def test_default_jobs_is_at_least_one() -> None:
    """There is always someone to work."""
    assert 1 <= default_jobs() <= 8
