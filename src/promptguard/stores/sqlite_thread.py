"""One SQLite connection in one thread, used from a coroutine."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from promptguard.stores.checks import closed
from promptguard.stores.sqlite_file import SqliteFile

T = TypeVar("T")


class SqliteThread:
    """Runs functions on a connection, one after the other, in the order they were given.

    The connection is opened at the first use. A cancelled caller does not stop a function that
    has begun: it is finished or rolled back as a whole.
    """

    def __init__(self, file: SqliteFile, *, is_read_only: bool = False) -> None:
        self._file = file
        self._is_read_only = is_read_only
        self._connection: sqlite3.Connection | None = None
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="promptguard-sqlite")
        self._is_closed = False

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return `work(connection)`; raises StoreError where SQLite fails."""
        if self._is_closed:
            raise closed()
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._call, work)

    async def close(self) -> None:
        """Finish what was given, then release the file."""
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.get_running_loop().run_in_executor(self._executor, self._release)
        self._executor.shutdown(wait=False)

    def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._open()
            return work(self._connection)
        except sqlite3.Error as error:
            raise self._file.explain(error) from None

    def _open(self) -> sqlite3.Connection:
        connection = self._file.connect()
        if self._is_read_only:
            connection.execute("PRAGMA query_only = ON")
        return connection

    def _release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
