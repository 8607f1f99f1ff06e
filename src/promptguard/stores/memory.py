"""Sessions in memory: for tests and for one process that need not remember."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from promptguard.stores.feed import ChangeFeed
from promptguard.stores.rows import closed
from promptguard.stores.sqlite import SqliteStore
from promptguard.stores.sqlite_connection import SqliteFile, SqliteThread, migrate

_T = TypeVar("_T")


class MemoryStore(SqliteStore):
    """A SessionStore that ends with the process: a database of SQLite without a file."""

    def __init__(self) -> None:
        super().__init__(SqliteFile(path=Path(":memory:")))
        self._writer = self._reader = self._long_reader = _Here()
        # Nobody else can save here.
        self._feed = ChangeFeed()

    async def check_writable(self) -> None:
        """Raise StoreError once the store is closed."""
        await self.decisions()


class _Here(SqliteThread):
    """Runs functions at once, in the thread that asks: there is no disk to wait for."""

    def __init__(self) -> None:
        self._is_closed = False
        self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        # Event loops of several threads may share the store, and a transaction is one's own.
        self._lock = threading.Lock()
        self._memory.execute("PRAGMA foreign_keys = ON")
        migrate(self._memory)

    async def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        if self._is_closed:
            raise closed()
        with self._lock:
            return work(self._memory)

    async def close(self) -> None:
        self._is_closed = True
        self._memory.close()
