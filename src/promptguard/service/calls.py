"""Calls under way: where each is computed, and when its computations end.

Calls of pages, over a websocket or in the background, belong to no HTTP request. They run in the
same lanes and child process as requests, and under the same limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from promptguard.computations import checkpoints, offloading
from promptguard.errors import EvaluationError
from promptguard.service.auth import Principal
from promptguard.service.child import Child
from promptguard.service.errors import ApiError
from promptguard.service.lanes import Call, Lane, LaneExecutor, under_way
from promptguard.service.settings import LiveSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Begins calls; one of a page waits together with the requests of the same key."""

    live: LiveSettings
    lanes: LaneExecutor
    child: Child | None

    @asynccontextmanager
    async def begin(self, principal: Principal, lane: Lane) -> AsyncIterator[None]:
        """Compute in `lane` what the block of a page computes, as `run` does.

        Raises EvaluationError where too much is waiting, and where a heavy call takes too long.
        """
        try:
            # Without keys nothing tells one visitor's pages from another's.
            async with self.run(call_of(principal, "pages", lane)):
                yield
        except ApiError as error:
            # Pages show errors of ours; they know no HTTP status.
            raise EvaluationError(str(error.detail)) from None

    @asynccontextmanager
    async def run(self, call: Call) -> AsyncIterator[None]:
        """Compute in the lane of `call` what the block computes.

        The block's end by cancellation ends that too; a heavy call ends with a 503 ApiError when
        its time is over.
        """
        time_s = self.live.current.service.heavy_timeout_s
        deadline = asyncio.timeout(time_s if call.lane is Lane.HEAVY else None)
        child = self.child
        elsewhere = nullcontext() if child is None else offloading(partial(in_child, child, call))
        try:
            with under_way(call), checkpoints(partial(self.lanes.check, call)), elsewhere:
                async with deadline:
                    yield
        except TimeoutError:
            # Any other is a failure of what was called.
            if not deadline.expired():
                raise
            raise ApiError(
                503,
                f"This took longer than the {time_s:g} s allowed for it.",
                code="deadline",
                headers={"retry-after": "30"},
            ) from None


def call_of(principal: Principal, peer: str, lane: Lane) -> Call:
    """Return a call that waits with those of the same key or, without one, of `peer`."""
    owner = f"key {principal.name}" if principal.name else peer
    return Call(owner=owner, tenant=principal.tenant, lane=lane)


def in_child(child: Child, call: Call, work: Callable[[], Any]) -> Any:
    """Return the result of `work`, computed in the child unless the call is a short one."""
    # For a short one the way to the child and back takes longer than the work.
    return work() if call.lane is Lane.SHORT else child.run(call, work)
