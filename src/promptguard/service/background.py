"""Work that must be finished though its request is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from promptguard.service.logs import log


class Background:
    """Runs such work; `drain` waits for it at shutdown."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[object, object, object]) -> None:
        """Start `work`."""
        task = asyncio.get_running_loop().create_task(logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self, timeout_s: float) -> None:
        """Wait for what is under way, but not longer than `timeout_s`."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=timeout_s)


async def logged(work: Coroutine[object, object, object]) -> None:
    """Do `work`; a failure is logged, because nobody else will see it."""
    try:
        await work
    except Exception as error:
        log(logging.ERROR, "background work failed", error=error)
