"""Connections to PostgreSQL: a pool, the schema, and repetition while the database restarts."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from promptguard.errors import StoreError
from promptguard.stores.migrations import MIGRATIONS, Migration, pending
from promptguard.stores.rows import closed

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
_OPTIONS: dict[str, Any] = {"autocommit": True, "connect_timeout": 5, "keepalives_idle": 30}

_ATTEMPTS = 7
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 5.0
# A server that was reached is named as it was; else part of a mistaken URL may be quoted.
_REACHED = "connection to server "
_QUOTED = re.compile(r"""(["']).*\1""")
_MIGRATION_LOCK = 0x70677364  # any fixed number: the name of our advisory lock
# serialization failure, deadlock, server going down or not yet up, too many connections
_PASSING = frozenset({"40001", "40P01", "57P01", "57P02", "57P03", "53300"})


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
            # Not psycopg's `close`, a coroutine: the event loop of these connections may have
            # ended.
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


class PostgresLink:
    """Runs work on pooled connections; the pool opens and the schema migrates at first use.

    Work is repeated after a lost connection, at most `_ATTEMPTS` times and `timeout_s` seconds in
    all, so it must do no harm when its first run did succeed unseen. With `must_exist` a database
    without our tables is an error instead of a new store.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        timeout_s: float = 30.0,
        sleep: Sleep = asyncio.sleep,
        migrations: Sequence[Migration] = MIGRATIONS,
        must_exist: bool = False,
    ) -> None:
        self._url = url
        self._pool_size = pool_size
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._migrations = migrations
        self._must_exist = must_exist
        self._loop: asyncio.AbstractEventLoop | None = None
        # Turns that arrive together must not each migrate and open a pool.
        self._opening = asyncio.Lock()
        self._pool: ConnectionPool | None = None
        self._is_closed = False

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Return `await work(connection)`; raises StoreError where the database fails."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._repeated(work)
        except TimeoutError:
            raise StoreError(
                f"PostgreSQL did not answer within {self._timeout_s:g} s; check its load and locks."
            ) from None

    async def connect(self) -> Connection:
        """Return a connection of the caller's own, outside the pool."""
        await self._open_pool()
        return await connect(self._url)

    async def wait(self, attempt: int) -> None:
        """Wait before repeating: longer each time, never the same for two clients."""
        # Bounded in the exponent too: no float holds what a day of attempts would come to.
        longest = min(_FIRST_DELAY_S * 2.0 ** min(attempt, 10), _LONGEST_DELAY_S)
        await self._sleep(longest * random.uniform(0.5, 1.0))

    def close(self) -> None:
        """Release the connections; work under way finishes, further work is refused."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.close()

    async def _repeated(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        attempt = 0
        while True:
            try:
                pool = await self._open_pool()
                async with pool.connection() as connection:
                    return await work(connection)
            except psycopg.Error as error:
                attempt += 1
                if self._is_closed:
                    raise closed() from None
                if not _is_passing(error) or attempt == _ATTEMPTS:
                    raise _explained(error) from None
            await self.wait(attempt)
            if self._pool is not None:
                self._pool.drop_idle()

    async def _open_pool(self) -> ConnectionPool:
        if self._is_closed:
            raise closed()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # Connections live and die with their event loop; `asyncio.run` twice needs two pools.
            if self._pool is not None:
                self._pool.close()
            self._loop, self._opening, self._pool = loop, asyncio.Lock(), None
        async with self._opening:
            if self._pool is None:
                await self._migrate()
                self._pool = ConnectionPool(self._url, size=self._pool_size)
            return self._pool

    async def _migrate(self) -> None:
        async with (
            await connect(self._url) as connection,
            connection.transaction(),
        ):
            # Read without the lock first: an ordinary start then changes nothing and waits for
            # nobody.
            found = await _schema_number(connection)
            if found == self._migrations[-1].number:
                return
            if self._must_exist and not found:
                info = connection.info
                raise StoreError(
                    f"The database {info.dbname} on {info.host} holds no sessions of promptguard; "
                    "check the store URL (conversation.store)."
                )
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
            # IF NOT EXISTS does not protect two concurrent creations; the lock above does.
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS guard_schema (number INTEGER NOT NULL)"
            )
            for step in pending(await _schema_number(connection), self._migrations):
                for statement in step.postgres:
                    # psycopg's types accept a composed statement only as bytes, not as str.
                    await connection.execute(statement.encode())
                await connection.execute("DELETE FROM guard_schema")
                await connection.execute("INSERT INTO guard_schema VALUES (%s)", (step.number,))


async def _schema_number(connection: Connection) -> int:
    # A missing table is NULL here; to select from it would abort the transaction.
    cursor = await connection.execute("SELECT to_regclass('guard_schema') IS NOT NULL")
    row = await cursor.fetchone()
    if row is None or not row[0]:
        return 0
    cursor = await connection.execute("SELECT coalesce(max(number), 0) FROM guard_schema")
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


def _is_passing(error: psycopg.Error) -> bool:
    if error.sqlstate is None:
        # Without a code the server did not answer: the connection was refused or lost.
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return error.sqlstate in _PASSING or error.sqlstate.startswith("08")


def _explained(error: psycopg.Error) -> StoreError:
    # Errors about a statement may quote its values.
    if error.sqlstate is not None:
        return StoreError(
            f"PostgreSQL refused ({type(error).__name__}, {error.sqlstate}); see its log."
        )
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if _REACHED not in reason:
        reason = _QUOTED.sub("…", reason)
    return StoreError(
        f"PostgreSQL cannot be reached ({reason}); check that it runs and that the store URL, "
        "user and password are right."
    )
