"""Where computations run: a pool of threads per lane, and in each lane callers take turns.

Short turns, long turns and heavy calls (replay, explanation, rubric) have threads of their own, so
that none waits for another kind. Within a lane the callers are served in rotation, however many
computations one of them has waiting. The lane and the caller come from the request under way
(`current_call`), so that whatever runs in `asyncio.to_thread` is scheduled, wherever it is called.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Any, ParamSpec, TypeVar

from promptguard.computations import offloaded
from promptguard.config import ServiceConfig
from promptguard.service.errors import ApiError

_GLANCE_S = 0.01
RETRY_AFTER_S = 2
# A longer body makes its request a long one.
LONG_BODY_BYTES = 16 * 1024
# Reading more stored turns than this makes a call a long one.
LONG_SESSION_TURNS = 100
# Without keys each connection is a caller; who was served last is kept of so many.
MAX_CALLERS = 10_000
# The deadline of a heavy call includes its waiting; a longer queue would only time out.
MAX_HEAVY = 16
MAX_HEAVY_PER_CALLER = 2
P = ParamSpec("P")
T = TypeVar("T")


class Lane(StrEnum):
    """How much a request computes: a short turn, a long one, or a call over a whole session."""

    SHORT = "short"
    LONG = "long"
    HEAVY = "heavy"


@dataclass(slots=True, kw_only=True)
class Call:
    """One request. `is_over`: nobody waits for its result any more.

    `operation`, `model` and `provider` are what it asks of the upstream, once that is known.
    """

    owner: str = ""
    tenant: str = "default"
    lane: Lane = Lane.SHORT
    operation: str = ""
    model: str = ""
    provider: str = ""
    is_over: bool = False


_CALL: ContextVar[Call | None] = ContextVar("promptguard_call", default=None)


def current_call() -> Call:
    """Return the request under way; outside of requests a short one of nobody's."""
    return _CALL.get() or Call()


@contextmanager
def under_way(call: Call) -> Iterator[Call]:
    """Make `call` the request under way in the block and in the tasks that it starts."""
    token = _CALL.set(call)
    try:
        yield call
    except (asyncio.CancelledError, TimeoutError):
        # A thread cannot be stopped from outside; its computation asks for this at checkpoints.
        call.is_over = True
        raise
    finally:
        _CALL.reset(token)


# How long a computation lets short turns go first at each of its steps (a window of text, a
# turn). It goes on after that, so that it is slow while the service is full, and never stuck.
PATIENCE_S = {Lane.SHORT: 0.0, Lane.LONG: 0.25, Lane.HEAVY: 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """Threads of one lane, and how many computations may wait: in all, and of one caller."""

    threads: int
    waiting: int
    waiting_per_caller: int


class Abandoned(Exception):
    """Ends a computation whose caller has left or whose time is over."""


@dataclass(slots=True, kw_only=True)
class _Job:
    work: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.work())
        except BaseException as error:
            self.future.set_exception(error)


class _Pool:
    """The threads of one lane, and the jobs that wait for them, served caller by caller."""

    def __init__(self, lane: Lane, limits: LaneLimits) -> None:
        self._limits = limits
        self._callers: OrderedDict[str, deque[_Job]] = OrderedDict()
        self._waiting = 0
        self._running = 0
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(limits.threads, thread_name_prefix=f"promptguard-{lane}")

    @property
    def is_busy(self) -> bool:
        # Read without the lock: an outdated answer costs no more than one short pause.
        return self._running + self._waiting > 0

    def submit(self, owner: str, job: _Job) -> None:
        with self._lock:
            if self._is_full(owner):
                self._drop_cancelled()
                if self._is_full(owner):
                    raise busy()
            self._callers.setdefault(owner, deque()).append(job)
            self._waiting += 1
        # One ticket for each job: which job it is for is decided when a thread is free.
        self._threads.submit(self._next)

    def shutdown(self, *, wait: bool, cancel: bool) -> None:
        with self._lock:
            while cancel and self._waiting:
                # What has not begun never begins, and whoever waits for it is told.
                self._take().future.cancel()
        self._threads.shutdown(wait=wait, cancel_futures=cancel)

    def _is_full(self, owner: str) -> bool:
        limits, own = self._limits, len(self._callers.get(owner, ()))
        return self._waiting >= limits.waiting or own >= limits.waiting_per_caller

    def _drop_cancelled(self) -> None:
        """Take out the jobs that nobody waits for, whose places others need."""
        for owner, jobs in tuple(self._callers.items()):
            self._callers[owner] = deque(job for job in jobs if not job.future.cancelled())
            if not self._callers[owner]:
                del self._callers[owner]
        self._waiting = sum(map(len, self._callers.values()))

    def _take(self) -> _Job:
        owner, jobs = self._callers.popitem(last=False)
        if len(jobs) > 1:
            # Put back at the end: the other callers go first, however many jobs wait here.
            self._callers[owner] = jobs
        self._waiting -= 1
        return jobs.popleft()

    def _next(self) -> None:
        with self._lock:
            # Its job may have been taken by a shutdown, or have left the queue.
            if not self._waiting:
                return
            job = self._take()
            self._running += 1
        try:
            job.run()
        finally:
            with self._lock:
                self._running -= 1


class LaneExecutor(ThreadPoolExecutor):
    """The event loop's executor: sends each computation to the lane of its request.

    `submit` raises a 503 ApiError with Retry-After where the lane is full.
    """

    def __init__(
        self, limits: Mapping[Lane, LaneLimits], *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        # asyncio takes only a ThreadPoolExecutor as its default; the threads are those of the
        # pools.
        super().__init__(max_workers=1)
        self._pools = {lane: _Pool(lane, limits[lane]) for lane in Lane}
        self._sleep = sleep

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start `fn` in a thread of the lane that the request under way is in."""
        call = current_call()
        job = _Job(work=partial(fn, *args, **kwargs))
        self._pools[call.lane].submit(call.owner, job)
        return job.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the running computations end."""
        for pool in self._pools.values():
            pool.shutdown(wait=wait, cancel=cancel_futures)
        super().shutdown(wait=wait, cancel_futures=cancel_futures)

    def check(self, call: Call) -> None:
        """Hold a computation of `call` up while short turns are under way; end it if it is over.

        Called at the checkpoints of what runs in the lanes.
        """
        left_s = PATIENCE_S[call.lane]
        while not call.is_over:
            if left_s <= 0 or not self._pools[Lane.SHORT].is_busy:
                return
            self._sleep(_GLANCE_S)
            left_s -= _GLANCE_S
        raise Abandoned


class JudgingSlots:
    """Lets a bounded number of turns be judged at once in each lane, callers in rotation.

    A turn that waits here costs the event loop nothing, so that a caller with one request does
    not wait for the loop's work on everybody else's.
    """

    def __init__(self, slots: Mapping[Lane, int]) -> None:
        self._free = dict(slots)
        self._waiting: dict[Lane, dict[str, deque[asyncio.Future[None]]]] = {
            lane: {} for lane in slots
        }
        self._numbers = count(1)
        self._served: OrderedDict[str, int] = OrderedDict()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold a slot of the lane of the request under way for a block."""
        call = current_call()
        lane = call.lane
        await self._enter(lane, call.owner)
        try:
            yield
        finally:
            self._leave(lane)

    async def _enter(self, lane: Lane, owner: str) -> None:
        if self._free[lane] > 0:
            self._free[lane] -= 1
            self._note(owner)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[lane].setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(lane)  # the slot was ours already
            raise

    def _leave(self, lane: Lane) -> None:
        """Give the slot to the caller that was not served for longest, or set it free."""
        callers = self._waiting[lane]
        while callers:
            owner = min(callers, key=lambda each: self._served.get(each, 0))
            turn = callers[owner].popleft()
            if not callers[owner]:
                del callers[owner]
            if not turn.done():
                self._note(owner)
                turn.set_result(None)
                return
        self._free[lane] += 1

    def _note(self, owner: str) -> None:
        self._served[owner] = next(self._numbers)
        self._served.move_to_end(owner)
        if len(self._served) > MAX_CALLERS:
            self._served.popitem(last=False)


def judging_slots(config: ServiceConfig) -> dict[Lane, int]:
    """Return how many turns each lane judges at once: enough to keep its threads at work."""
    # Of long work one more, so that the next turn is ready when a thread becomes free.
    limits = lane_limits(config)
    return {lane: limits[lane].threads + (lane is not Lane.SHORT) for lane in Lane}


async def computed(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `work(...)`, computed off the event loop unless the request under way is a short one.

    For a short one the way to a thread and back takes longer than the work.
    """
    if current_call().lane is Lane.SHORT:
        return work(*args, **kwargs)
    return await asyncio.to_thread(offloaded, work, *args, **kwargs)


async def computed_over(turns: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `work(...)`, which goes through `turns` stored turns; many make the request long."""
    call = current_call()
    if turns > LONG_SESSION_TURNS and call.lane is Lane.SHORT:
        call.lane = Lane.LONG
    return await computed(work, *args, **kwargs)


def lane_limits(config: ServiceConfig) -> dict[Lane, LaneLimits]:
    """Return the limits that the settings give to each lane."""
    most = config.max_waiting
    long = max(1, most // 4)
    rows = {
        Lane.SHORT: (config.threads, most, long),
        Lane.LONG: (config.long_threads, long, max(1, long // 4)),
        Lane.HEAVY: (config.heavy_threads, MAX_HEAVY, MAX_HEAVY_PER_CALLER),
    }
    return {
        lane: LaneLimits(threads=threads, waiting=waiting, waiting_per_caller=of_one)
        for lane, (threads, waiting, of_one) in rows.items()
    }


def busy() -> ApiError:
    """Return the error for a computation that finds its queue full."""
    return ApiError(
        503,
        "Too much of this kind is waiting; try again shortly.",
        code="busy",
        headers={"retry-after": str(RETRY_AFTER_S)},
    )
