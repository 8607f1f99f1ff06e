"""Starting and stopping: the thread pool, the jobs, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from promptguard.errors import PromptGuardError
from promptguard.service.background import Background
from promptguard.service.logs import log
from promptguard.service.retention import Retention
from promptguard.state import SessionState
from promptguard.turns.verdict import TurnInput

Closer = Callable[[], Awaitable[None]]
Starter = Callable[[], Awaitable[object]]


@dataclass(slots=True, kw_only=True)
class Lifecycle:
    """One life of the service. `closers` are called last, in order."""

    retention: Retention
    background: Background
    threads: int
    shutdown_s: float
    closers: tuple[Closer, ...]
    starters: tuple[Starter, ...] = ()
    is_started: bool = field(default=False, init=False)
    is_stopping: bool = field(default=False, init=False)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Be alive while the block runs."""
        executor = ThreadPoolExecutor(self.threads, thread_name_prefix="promptguard")
        asyncio.get_running_loop().set_default_executor(executor)
        await self._warm_up()
        for start in self.starters:
            await start()
        job = asyncio.ensure_future(self.retention.run())
        self.is_started = True
        log(logging.INFO, "started")
        try:
            yield
        finally:
            self.stop()
            job.cancel()
            with suppress(asyncio.CancelledError):
                await job
            await self.background.drain(self.shutdown_s)
            for close in self.closers:
                await close()
            log(logging.INFO, "stopped")

    async def _warm_up(self) -> None:
        """Load model and rules before the first turn asks for them."""
        judge = self.retention.controller.judge
        turn = TurnInput(text="ready?")
        try:
            await asyncio.to_thread(judge.judge, SessionState(session_id="warm"), turn, now=0.0)
        except PromptGuardError as error:
            log(logging.ERROR, "cannot judge", reason=str(error))

    def stop(self) -> None:
        """Say that the end has begun: no longer ready, though turns in flight finish."""
        self.is_stopping = True
