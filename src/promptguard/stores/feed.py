"""Changes as they happen: one publisher, any number of readers, bounded memory."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine

from promptguard.protocols import SessionKey
from promptguard.stores.rows import closed

MAX_PENDING = 10_000

Watch = Callable[[], Coroutine[None, None, None]]


class Subscription(AsyncIterator[SessionKey]):
    """One reader's view: keys from the moment of subscription on.

    A key waiting to be read is not queued again, so one key may stand for several saves. A
    reader that falls more than MAX_PENDING sessions behind loses the oldest.
    """

    def __init__(self) -> None:
        # A dict and not a queue: keys are kept in order, and each once.
        self._pending: dict[SessionKey, None] = {}
        self._ready = asyncio.Event()
        self._has_ended = False
        self._error: BaseException | None = None

    def put(self, key: SessionKey) -> None:
        """Queue a key."""
        self._pending[key] = None
        if len(self._pending) > MAX_PENDING:
            # Memory stays bounded whatever a reader does.
            del self._pending[next(iter(self._pending))]
        self._ready.set()

    def end(self, error: BaseException | None = None) -> None:
        """End the iteration once what is queued has been read, with `error` where given."""
        self._has_ended, self._error = True, error
        self._ready.set()

    async def __anext__(self) -> SessionKey:
        while not self._pending:
            if self._error is not None:
                raise self._error
            if self._has_ended:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        key = next(iter(self._pending))
        del self._pending[key]
        return key


class ChangeFeed:
    """Hands every published key to every reader.

    `watch` brings in what other processes saved; it runs in a task while there are `readers`
    and must return soon after the last has gone. Readers need not unsubscribe: one that is no
    longer referenced is forgotten.
    """

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch
        self._task: asyncio.Task[None] | None = None
        self.readers: weakref.WeakSet[Subscription] = weakref.WeakSet()
        self._is_closed = False

    def publish(self, key: SessionKey) -> None:
        """Tell every reader."""
        for reader in tuple(self.readers):
            reader.put(key)

    def subscribe(self) -> Subscription:
        """Return a new reader; call it where an event loop runs."""
        if self._is_closed:
            raise closed()
        reader = Subscription()
        self.readers.add(reader)
        if self._watch is not None and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._watch())
            self._task.add_done_callback(self._watch_ended)
        return reader

    async def close(self) -> None:
        """End every reader's iteration."""
        self._is_closed = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            # `wait` raises nothing of the task: its error was given to the readers.
            await asyncio.wait({self._task})
        for reader in tuple(self.readers):
            reader.end()

    def _watch_ended(self, task: asyncio.Task[None]) -> None:
        # An error must reach the readers, or it would look as if nothing were saved any more.
        if not task.cancelled() and (error := task.exception()) is not None:
            for reader in tuple(self.readers):
                reader.end(error)
