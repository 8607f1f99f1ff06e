"""Who is served when: one turn at a time per session, callers in rotation, few at once each."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count

from promptguard.config import ServiceConfig
from promptguard.protocols import SessionKey
from promptguard.service.errors import ApiError
from promptguard.service.lanes import Lane, current_call

MAX_WAITING = 256
MAX_CALLERS = 10_000


@dataclass(slots=True)
class _Entry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class SessionQueues:
    """Lets the turns of one session be judged one after the other, in the order they came.

    Only this process is ordered; others are told apart by the version in the store.
    """

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self._limit = limit
        self._entries: dict[SessionKey, _Entry] = {}

    @asynccontextmanager
    async def turn_of(self, key: SessionKey) -> AsyncIterator[None]:
        """Hold the session for a block; raises a 503 ApiError where too many wait for it."""
        entry = self._entries.setdefault(key, _Entry())
        if entry.users >= self._limit:
            raise ApiError(
                503,
                "Too many turns of this session are waiting; try again shortly.",
                code="busy",
                headers={"retry-after": "1"},
            )
        entry.users += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.users -= 1
            if not entry.users:
                del self._entries[key]

    def __len__(self) -> int:
        return len(self._entries)


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
    return {
        Lane.SHORT: config.threads,
        Lane.LONG: config.long_threads + 1,
        Lane.HEAVY: config.heavy_threads + 1,
    }


class CallerSlots:
    """Counts the requests under way: of each caller, and of all together."""

    def __init__(self) -> None:
        self._all = 0
        self._used: Counter[str] = Counter()

    @contextmanager
    def slot(self, caller: str, limit: int, limit_of_all: int) -> Iterator[None]:
        """Hold one of the caller's slots for a block; raises a 429 ApiError where none is free."""
        for who, used, most in (
            ("The service", self._all, limit_of_all),
            ("This key", self._used[caller], limit),
        ):
            if used >= most:
                raise ApiError(
                    429,
                    f"{who} has {most} requests under way, which is its limit; wait for one.",
                    code="too_many_at_once",
                    headers={"retry-after": "1"},
                )
        self._all += 1
        self._used[caller] += 1
        try:
            yield
        finally:
            self._all -= 1
            self._used[caller] -= 1
            if not self._used[caller]:
                del self._used[caller]
