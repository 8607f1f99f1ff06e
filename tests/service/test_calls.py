"""Calls without a request of their own: their lane, their deadline, their place in the queue."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from endless import Endless
from guarded_service import fast_judge

from promptguard.computations import offloaded
from promptguard.config import ControllerConfig, ServiceConfig, Settings
from promptguard.errors import EvaluationError
from promptguard.service.auth import Principal
from promptguard.service.calls import Calls
from promptguard.service.child import Child, lane_connections
from promptguard.service.lanes import (
    MAX_HEAVY_PER_CALLER,
    Lane,
    LaneExecutor,
    current_call,
    lane_limits,
)
from promptguard.service.settings import LiveSettings

BOSS, OTHER = Principal(name="boss"), Principal(name="other")


@asynccontextmanager
async def open_calls(*, child: Child | None = None, **service: Any) -> AsyncIterator[Calls]:
    """Calls on lanes that the event loop's threads are those of."""
    config = ServiceConfig(**service)
    lanes = LaneExecutor(lane_limits(config))
    asyncio.get_running_loop().set_default_executor(lanes)
    live = LiveSettings(Settings(service=config))
    try:
        yield Calls(live=live, lanes=lanes, child=child)
    finally:
        if child is not None:
            await child.close()


async def computed(calls: Calls, principal: Principal, lane: Lane, work: Any) -> Any:
    async with calls.begin(principal, lane):
        return await asyncio.to_thread(offloaded, work)


async def test_long_and_heavy_calls_are_computed_in_the_child() -> None:
    """As those of requests are; short ones stay where they are asked for."""
    judge = fast_judge(ControllerConfig(store="memory:"))
    child = Child(fast_judge, judge, lane_connections(ServiceConfig()))
    async with open_calls(child=child) as calls:
        pids = {lane: await computed(calls, BOSS, lane, os.getpid) for lane in Lane}
    assert pids[Lane.SHORT] == os.getpid()
    assert pids[Lane.LONG] == pids[Lane.HEAVY] != os.getpid()


@pytest.mark.parametrize(
    ("principal", "owner"), [(BOSS, "key boss"), (Principal(tenant="t"), "pages")]
)
async def test_a_call_is_its_callers(principal: Principal, owner: str) -> None:
    """It waits with the requests of the same key, and is over with its block."""
    async with open_calls() as calls:
        async with calls.begin(principal, Lane.HEAVY):
            call = current_call()
        assert (call.owner, call.tenant, call.lane) == (owner, principal.tenant, Lane.HEAVY)
        assert current_call() is not call


async def test_a_heavy_call_ends_at_its_deadline() -> None:
    """Whoever waits is told, and the computation stops."""
    endless = Endless()
    async with open_calls(heavy_timeout_s=0.2) as calls:
        with pytest.raises(EvaluationError, match="longer than"):
            await computed(calls, BOSS, Lane.HEAVY, endless.work)
        assert await asyncio.to_thread(endless.ended.wait, 20)


async def test_a_failure_within_its_time_is_not_the_deadlines() -> None:
    """A connection that timed out is told as what it is."""

    def times_out() -> None:
        raise TimeoutError("the store's own")

    async with open_calls() as calls:
        with pytest.raises(TimeoutError, match="own"):
            await computed(calls, BOSS, Lane.HEAVY, times_out)


async def test_a_call_ends_with_whoever_waits_for_it() -> None:
    """A cancelled task leaves no computation behind."""
    endless = Endless()
    async with open_calls() as calls:
        task = asyncio.ensure_future(computed(calls, BOSS, Lane.HEAVY, endless.work))
        assert await asyncio.to_thread(endless.began.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(endless.ended.wait, 20)


async def test_calls_beyond_the_queue_are_refused() -> None:
    """One caller may have a few waiting; others still wait in line, and short work goes on."""
    endless = Endless()
    async with open_calls() as calls:

        def ask(principal: Principal) -> asyncio.Task[Any]:
            return asyncio.ensure_future(computed(calls, principal, Lane.HEAVY, endless.work))

        running = [ask(BOSS)]
        assert await asyncio.to_thread(endless.began.wait, 20)
        running += [ask(BOSS) for _ in range(MAX_HEAVY_PER_CALLER)] + [ask(OTHER)]
        await asyncio.sleep(0)
        with pytest.raises(EvaluationError, match="waiting"):
            await ask(BOSS)
        assert await computed(calls, BOSS, Lane.SHORT, os.getpid) == os.getpid()
        assert not any(task.done() for task in running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
