"""Long computations ask whether to go on, and run where the program that serves them says."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from promptguard.computations import checkpoint, checkpoints, offloaded, offloading


class Stopped(Exception):
    """What a caller raises to end a computation."""


def stop() -> None:
    raise Stopped


def test_without_a_caller_that_asks_a_computation_goes_on() -> None:
    """The library alone has nobody to stop it."""
    checkpoint()


def test_a_check_holds_for_its_block_alone() -> None:
    """Also where the block ends in an error."""
    reached: list[int] = []
    with checkpoints(lambda: reached.append(1)):
        checkpoint()
        checkpoint()
    checkpoint()
    with pytest.raises(Stopped), checkpoints(stop):
        checkpoint()
    checkpoint()
    assert reached == [1, 1]


def test_the_inner_check_holds_and_the_outer_one_after_it() -> None:
    """They are not added up."""
    asked: list[str] = []
    with checkpoints(lambda: asked.append("outer")):
        with checkpoints(lambda: asked.append("inner")):
            checkpoint()
        checkpoint()
    assert asked == ["inner", "outer"]


async def test_a_check_goes_with_the_work_into_a_thread() -> None:
    """That is where computations run; a thread that nobody gave the context has none."""
    with checkpoints(stop):
        with pytest.raises(Stopped):
            await asyncio.to_thread(checkpoint)
        ended: list[bool] = []
        bare = threading.Thread(
            target=lambda: contextvars.Context().run(lambda: (checkpoint(), ended.append(True)))
        )
        bare.start()
        bare.join(10)
    assert ended == [True]


async def test_requests_have_checks_of_their_own() -> None:
    """One that is stopped stops no other."""

    async def request(check: Callable[[], None]) -> str:
        with checkpoints(check):
            await asyncio.sleep(0)
            try:
                await asyncio.to_thread(checkpoint)
            except Stopped:
                return "stopped"
        return "done"

    outcomes = await asyncio.gather(request(stop), request(lambda: None), request(stop))
    assert outcomes == ["stopped", "done", "stopped"]


def test_without_a_place_to_go_work_is_a_plain_call() -> None:
    """Arguments, result and errors are its own."""
    assert offloaded(divmod, 7, 2) == (3, 1)
    assert offloaded(int, "ff", base=16) == 255
    with pytest.raises(ZeroDivisionError):
        offloaded(divmod, 1, 0)


def test_work_goes_where_the_block_says_whole() -> None:
    """It comes with its arguments, so that it can be sent to another process."""
    taken: list[Any] = []

    def elsewhere(work: Callable[[], Any]) -> Any:
        taken.append(work)
        return ["elsewhere", work()]

    with offloading(elsewhere):
        assert offloaded(divmod, 7, 2) == ["elsewhere", (3, 1)]  # type: ignore[comparison-overlap]
    assert offloaded(divmod, 7, 2) == (3, 1)
    assert taken[0].args == (7, 2)


def test_an_error_of_the_other_place_is_the_works_error() -> None:
    """And after it work is done here again."""

    def lost(work: Callable[[], Any]) -> Any:
        raise Stopped

    with pytest.raises(Stopped), offloading(lost):
        offloaded(divmod, 7, 2)
    assert offloaded(divmod, 7, 2) == (3, 1)
