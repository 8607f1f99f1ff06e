"""One at a time per session, and a bounded number at once per caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from promptguard.protocols import SessionKey
from promptguard.service.errors import ApiError

MAX_WAITING = 256


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


class CallerSlots:
    """Counts the requests under way of each caller."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    @contextmanager
    def slot(self, caller: str, limit: int) -> Iterator[None]:
        """Hold one of the caller's slots for a block; raises a 429 ApiError where none is free."""
        used = self._used.get(caller, 0)
        if used >= limit:
            raise ApiError(
                429,
                f"This key has {limit} requests under way, which is its limit; wait for one.",
                code="too_many_at_once",
                headers={"retry-after": "1"},
            )
        self._used[caller] = used + 1
        try:
            yield
        finally:
            self._used[caller] -= 1
            if not self._used[caller]:
                del self._used[caller]
