"""Starting and stopping: the thread pool, the jobs, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from promptguard.service.background import Background, logged
from promptguard.service.logs import log

Closer = Callable[[], Awaitable[None]]
Job = Callable[[], Coroutine[object, object, object]]


@dataclass(slots=True, kw_only=True)
class Lifecycle:
    """One life of the service: `jobs` run beside it, `closers` are called last, in order."""

    background: Background
    threads: int
    shutdown_s: float
    closers: tuple[Closer, ...]
    jobs: tuple[Job, ...] = ()
    is_started: bool = field(default=False, init=False)
    is_stopping: bool = field(default=False, init=False)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Be alive while the block runs."""
        executor = ThreadPoolExecutor(self.threads, thread_name_prefix="promptguard")
        asyncio.get_running_loop().set_default_executor(executor)
        jobs = [asyncio.ensure_future(logged(job())) for job in self.jobs]
        self.is_started = True
        log(logging.INFO, "started")
        try:
            yield
        finally:
            self.stop()
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            await self.background.drain(self.shutdown_s)
            for close in self.closers:
                await close()
            log(logging.INFO, "stopped")

    def stop(self) -> None:
        """Say that the end has begun: no longer ready, though turns in flight finish."""
        self.is_stopping = True
