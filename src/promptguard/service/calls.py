"""Computations that belong to no HTTP request: asked over a page's websocket, or in the background.

They run in the same lanes and child process as requests, and under the same limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from promptguard.errors import EvaluationError
from promptguard.service.auth import Principal
from promptguard.service.child import Child
from promptguard.service.errors import ApiError
from promptguard.service.lanes import Call, Lane, LaneExecutor, under_way
from promptguard.service.middleware import computing, owner_of, too_long
from promptguard.service.settings import LiveSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Begins calls; one of a key waits together with the requests of the same key."""

    live: LiveSettings
    lanes: LaneExecutor
    child: Child | None

    @asynccontextmanager
    async def begin(self, principal: Principal, lane: Lane) -> AsyncIterator[None]:
        """Compute in `lane` what the block computes; its end by cancellation ends that too.

        Raises EvaluationError where too much is waiting, and where a heavy call takes too long.
        """
        config = self.live.current.service
        # Without keys nothing tells one visitor's pages from another's.
        call = Call(owner=owner_of(principal, "pages"), tenant=principal.tenant, lane=lane)
        deadline_s = config.heavy_timeout_s if lane is Lane.HEAVY else None
        try:
            with under_way(call), computing(call, self.lanes, self.child):
                async with asyncio.timeout(deadline_s):
                    yield
        except TimeoutError:
            raise EvaluationError(str(too_long(config).detail)) from None
        except ApiError as error:
            # Pages show errors of ours; they know no HTTP status.
            raise EvaluationError(str(error.detail)) from None
