"""Sessions in PostgreSQL, shared by a fleet of guards."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

import psycopg

from promptguard.errors import SessionNotFound
from promptguard.protocols import SessionKey, SessionLabel
from promptguard.state import SessionState, TranscriptEntry
from promptguard.stores import postgres_statements as written
from promptguard.stores.feed import ChangeFeed
from promptguard.stores.postgres_connection import Connection, PostgresLink, Sleep
from promptguard.stores.questions import DELETE, ReadingStore, about
from promptguard.stores.rows import (
    check_save,
    conflict,
    label_json,
    rows_of,
    state_in,
    turns_of,
)
from promptguard.stores.statements import Rows, Statement

# How soon a listener notices that its last reader has gone; psycopg waits otherwise for ever.
_LISTEN_CYCLE_S = 2.0

_T = TypeVar("_T")


class PostgresStore(ReadingStore):
    """A SessionStore in PostgreSQL; every save is one statement, hence atomic and short.

    A save carries a token of its own. Where the connection is lost before the answer came, the
    repeated save finds its token among the last writes of the session and is not applied twice.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        timeout_s: float = 30.0,
        sleep: Sleep = asyncio.sleep,
        must_exist: bool = False,
    ) -> None:
        self._link = PostgresLink(
            url, pool_size=pool_size, timeout_s=timeout_s, sleep=sleep, must_exist=must_exist
        )
        # Tells this store's own saves, which are published directly, from those of other guards.
        self._origin = uuid.uuid4().hex
        self._feed = ChangeFeed(self._listen)

    async def _ask(self, asked: Sequence[Statement], read: Callable[[Sequence[Rows]], _T]) -> _T:
        async def work(link: Connection) -> _T:
            cursors = [await link.execute(each.for_postgres(), each.values) for each in asked]
            return read([await cursor.fetchall() for cursor in cursors])

        return await self._link.run(work)

    async def _do(self, statement: Statement) -> int:
        async def work(link: Connection) -> int:
            return (await link.execute(statement.for_postgres(), statement.values)).rowcount

        return await self._link.run(work)

    async def save(
        self, state: SessionState, *, expected_version: int, entries: Sequence[TranscriptEntry] = ()
    ) -> None:
        """Store `state` and `entries` in one statement, or raise VersionConflict."""
        key = check_save(state, expected_version)
        values = written.save_values(state, rows_of(entries), turns_of(key, entries), self._origin)
        await self._link.run(lambda link: _save(link, values))
        if self._feed.readers:
            self._feed.publish(key)

    async def check_writable(self) -> None:
        """Write something that nobody sees; raises StoreError where that fails."""
        await self._do(Statement(sql="UPDATE guard_schema SET number = number"))

    async def delete(self, key: SessionKey) -> bool:
        """Forget a session wholly; False where there was none."""
        # Asked before: a repeated deletion finds nothing where only the first one's answer was
        # lost.
        asked = about(
            key, "SELECT 1 FROM guard_sessions WHERE tenant = :tenant AND session_id = :session_id"
        )
        found = await self._rows(asked, tuple)
        await self._do(about(key, DELETE))
        return bool(found)

    async def put_label(self, key: SessionKey, label: SessionLabel) -> None:
        """Record a person's verdict; raises SessionNotFound."""
        values = asdict(label) | {"label": label_json(label), "token": written.new_token()}
        if not await self._do(about(key, written.PUT_LABEL, **values)):
            raise SessionNotFound("There is no such session to label.")

    async def redact(self, *, before: float) -> int:
        """Drop the text of transcript entries older than `before`; return how many."""
        asked = Statement(sql=written.WITH_OLD_TEXT, values={"before": before})
        total = 0
        while found := await self._rows(asked, _key):
            # One session at a time, so that no save waits long for a lock.
            for key in found:
                total += await self._link.run(partial(self._redact, key=key, before=before))
                self._feed.publish(key)
        return total

    def changes(self) -> AsyncIterator[SessionKey]:
        """Yield the key of each session as it is saved, by any guard of the fleet."""
        return self._feed.subscribe()

    async def close(self) -> None:
        """Release the connections."""
        await self._feed.close()
        self._link.close()

    async def _redact(self, link: Connection, key: SessionKey, before: float) -> int:
        """Drop one session's old text; return how many entries lost theirs."""
        old = (key.tenant, key.session_id, before)
        # The row is locked: a turn saved in between would be overwritten by the redacted state.
        async with link.transaction():
            row = await _row(
                link,
                """SELECT state FROM guard_sessions WHERE tenant = %s AND session_id = %s
                FOR UPDATE""",
                old[:2],
            )
            state = None if row is None else state_in(row[0])
            redacted = None if state is None else state.without_old_text(before)
            if redacted is not None:
                await _save(link, written.save_values(redacted, (), (), self._origin))
            await link.execute(
                """UPDATE guard_turns SET words = NULL
                WHERE tenant = %s AND session_id = %s AND second < %s""",
                old,
            )
            cursor = await link.execute(
                """UPDATE guard_entries SET content = NULL
                WHERE tenant = %s AND session_id = %s AND timestamp < %s AND content IS NOT NULL""",
                old,
            )
            return cursor.rowcount

    async def _listen(self) -> None:
        since: float | None = None
        attempt = 0
        while self._feed.readers:
            try:
                async with await self._link.connect() as connection:
                    # Listening begins before the look back: a save between the two is then seen
                    # twice, not missed.
                    await connection.execute(written.LISTEN)
                    since = await self._catch_up(connection, since)
                    attempt = 0
                    while self._feed.readers:
                        since = await self._receive(connection, since)
            except psycopg.Error:
                # The database may be restarting; what is saved meanwhile is caught up with
                # afterwards.
                attempt += 1
                await self._link.wait(attempt)

    async def _catch_up(self, connection: Connection, since: float | None) -> float:
        # The database's clock: those of the guards may differ from it and from each other.
        row = await _row(connection, "SELECT extract(epoch FROM clock_timestamp())::float8", ())
        assert row is not None
        if since is not None:
            async for found in await connection.execute(written.SAVED_SINCE, (since, self._origin)):
                self._feed.publish(_key(found))
        return float(row[0])

    async def _receive(self, connection: Connection, since: float) -> float:
        async for notice in connection.notifies(timeout=_LISTEN_CYCLE_S):
            saved = json.loads(notice.payload)
            since = max(since, float(saved["at"]))
            if saved["origin"] != self._origin:
                self._feed.publish(
                    SessionKey(tenant=saved["tenant"], session_id=saved["session_id"])
                )
        return since


async def _save(link: Connection, values: Mapping[str, Any]) -> None:
    """Put a state in the place of the version before it, or raise VersionConflict.

    Doing it again with the same token changes nothing and raises nothing.
    """
    expected = values["expected"]
    statement = Statement(sql=written.REPLACE if expected else written.CREATE)
    cursor = await link.execute(statement.for_postgres(), values)
    if cursor.rowcount:
        return
    # Nothing written: either someone else was first, or this is our own save, repeated.
    row = await _row(
        link,
        "SELECT version, writes FROM guard_sessions WHERE tenant = %s AND session_id = %s",
        (values["tenant"], values["session_id"]),
    )
    version, writes = row or (0, "")
    if values["token"] not in writes.split():
        raise conflict(version, expected)


async def _row(link: Connection, sql: str, values: Sequence[Any]) -> tuple[Any, ...] | None:
    return await (await link.execute(sql.encode(), values)).fetchone()


def _key(row: Sequence[Any]) -> SessionKey:
    return SessionKey(tenant=row[0], session_id=row[1])
