"""Startup, background jobs and shutdown of the service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from promptguard.controller import Controller
from promptguard.errors import PromptGuardError
from promptguard.protocols import SessionQuery
from promptguard.scenarios import Scenario, shipped_scenarios
from promptguard.service.lanes import LaneExecutor
from promptguard.service.logs import log
from promptguard.service.telemetry import Telemetry
from promptguard.state import DEMO_PREFIX
from promptguard.stored_sessions import FALSE_ALARM
from promptguard.turns.input import Content, TurnInput
from promptguard.turns.judge import TurnJudge

RETENTION_INTERVAL_S = 3600.0
# Longer scenarios test forgetting; nobody would read them in a demonstration.
MAX_DEMO_TURNS = 30
_DAY_S = 86_400.0

Work = Coroutine[object, object, object]
Job = Callable[[], Work]


class Background:
    """Tasks that outlive their request, such as recording the answer a client has left."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Work) -> asyncio.Task[None]:
        """Start `work`; its failure is logged."""
        task = asyncio.get_running_loop().create_task(_logged(work))
        # The event loop holds tasks only weakly, so they are kept here until they end.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self, timeout_s: float) -> None:
        """Wait for the running tasks, at most `timeout_s`."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=timeout_s)


@dataclass(slots=True, kw_only=True)
class Lifecycle:
    """Runs `starters` before the service, `jobs` beside it, and calls `closers` at its end."""

    background: Background
    lanes: LaneExecutor
    shutdown_s: float
    closers: tuple[Job, ...]
    starters: tuple[Job, ...] = ()
    jobs: tuple[Job, ...] = ()
    is_started: bool = field(default=False, init=False)
    is_stopping: bool = field(default=False, init=False)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Run startup, jobs and shutdown around the block."""
        # From here on whatever runs in `asyncio.to_thread` waits in the lane of its request.
        asyncio.get_running_loop().set_default_executor(self.lanes)
        for start in self.starters:
            # A failure here is logged and does not keep the service from starting.
            await _logged(start())
        jobs = [asyncio.ensure_future(_logged(job())) for job in self.jobs]
        self.is_started = True
        log(logging.INFO, "started")
        try:
            yield
        finally:
            self.stop()
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            # Answers still being recorded need the store, so it is closed after them.
            await self.background.drain(self.shutdown_s)
            for close in self.closers:
                await _logged(close())
            log(logging.INFO, "stopped")

    def stop(self) -> None:
        """Report not ready from now on; turns in flight still finish."""
        self.is_stopping = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Drops stored text once it is old enough; may run in several processes on one store."""

    controller: Controller
    telemetry: Telemetry
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self) -> None:
        """Run every hour until cancelled."""
        while True:
            # Whatever fails now may do in an hour; text must not stay because a job has ended.
            await _logged(self.once())
            await self.sleep(RETENTION_INTERVAL_S)

    async def once(self) -> int:
        """Drop what is too old now; return how many texts."""
        # Read at each run, because a reload may change it.
        days = self.controller.config.retention_days
        if days is None:
            return 0
        dropped = await self.controller.store.redact(before=self.clock() - days * _DAY_S)
        self.telemetry.redacted(dropped)
        if dropped:
            log(logging.INFO, "retention", redacted=dropped)
        return dropped


async def load_demo(
    controller: Controller,
    scenarios: Callable[[], Iterable[Scenario]] = shipped_scenarios,
    *,
    clock: Callable[[], float],
) -> int:
    """Judge and store the bundled scenarios if the store is empty; return how many.

    A failure is logged and does not stop the service.
    """
    loaded = 0
    try:
        # Any session of anybody: a store that is in use is never given demo data.
        if await controller.store.sessions(SessionQuery(tenant=None, limit=1)):
            return 0
        for scenario in scenarios():
            if len(scenario.turns) <= MAX_DEMO_TURNS:
                await _judge_scenario(controller, scenario, clock())
                loaded += 1
    except (PromptGuardError, OSError) as error:
        log(logging.WARNING, "demo not loaded", error=error)
    if loaded:
        log(logging.INFO, "demo loaded", sessions=loaded)
    return loaded


async def _judge_scenario(controller: Controller, scenario: Scenario, now: float) -> None:
    """Judge one scenario as it is meant: its prompt, settings, pauses and interventions."""
    own = await _controller_of(scenario, controller)
    session_id, at = DEMO_PREFIX + scenario.id, now - sum(turn.pause_s for turn in scenario.turns)
    for turn in scenario.turns:
        at += turn.pause_s
        if turn.before is not None:
            # Not labelled: nobody looked at it, and what learns from labels must not see it.
            await own.release(session_id, forgive=turn.before == FALSE_ALARM)
        contents = tuple(Content(text=text) for text in turn.tools)
        spoken = TurnInput(text=turn.user, contents=contents, system=scenario.system)
        result = await own.judge_turn(session_id, spoken, now=at)
        if turn.reply is not None and not result.is_blocked:
            await own.record_reply(result, turn.reply, now=at)


async def _controller_of(scenario: Scenario, controller: Controller) -> Controller:
    """Return a controller with the scenario's settings over the service's, on the same store."""
    changes = {name: getattr(scenario.config, name) for name in scenario.config.model_fields_set}
    if not changes:
        return controller
    judge = controller.judge
    own = await asyncio.to_thread(
        TurnJudge.open,
        controller.config.model_copy(update=changes),
        encoder=judge.encoder,
        instinct=None if changes.keys() & {"rules", "temporal"} else judge.instinct,
    )
    return Controller(own.config, store=controller.store, judge=own)


async def _logged(work: Work) -> None:
    """Await `work` and log its failure, which nobody else would see."""
    try:
        await work
    except Exception as error:
        log(logging.ERROR, "background work failed", error=error)
