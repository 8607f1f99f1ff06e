"""A few PostgreSQL connections, kept for the next who needs one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from promptguard.stores.checks import closed

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
_OPTIONS: dict[str, Any] = {"autocommit": True, "connect_timeout": 5, "keepalives_idle": 30}


async def connect(url: str) -> Connection:
    """Return a new connection on which every statement is a transaction of its own."""
    return await psycopg.AsyncConnection.connect(url, **_OPTIONS)


class ConnectionPool:
    """At most `size` connections of one event loop, opened when needed.

    It has no task of its own, so a loop may end without closing it: psycopg's pool keeps workers
    that ignore cancellation, and `asyncio.run` around a single call would wait for them forever.
    """

    def __init__(self, url: str, *, size: int) -> None:
        self._url = url
        self._places = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection; it comes back unless it was lost or left in the middle."""
        async with self._places:
            if self._is_closed:
                raise closed()
            connection = self._idle.pop() if self._idle else await connect(self._url)
            try:
                yield connection
            finally:
                self._take_back(connection)

    def drop_idle(self) -> None:
        """Close the connections nobody uses, which after a restart are all dead."""
        while self._idle:
            self._idle.pop().pgconn.finish()

    def close(self) -> None:
        """Lend no more; connections in use are closed when they come back."""
        self._is_closed = True
        self.drop_idle()

    def _take_back(self, connection: Connection) -> None:
        is_usable = connection.pgconn.transaction_status == TransactionStatus.IDLE
        if self._is_closed or not is_usable:
            connection.pgconn.finish()
        else:
            self._idle.append(connection)
