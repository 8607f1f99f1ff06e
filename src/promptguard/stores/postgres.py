"""Sessions in PostgreSQL, shared by a fleet of guards."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

import psycopg

from promptguard.decisions import Decision
from promptguard.errors import SessionNotFound
from promptguard.protocols import SessionKey, SessionLabel
from promptguard.state import SessionState, TranscriptEntry
from promptguard.stores import decision_statements as decided
from promptguard.stores import postgres_statements as statements
from promptguard.stores.feed import ChangeFeed
from promptguard.stores.postgres_connection import Connection, PostgresLink, Sleep
from promptguard.stores.questions import Question, ReadingStore
from promptguard.stores.rows import check_key, check_save, rows_of, turns_of

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

    async def _ask(self, question: Question[_T]) -> _T:
        return await self._link.run(lambda link: statements.ask(link, question))

    async def save(
        self, state: SessionState, *, expected_version: int, entries: Sequence[TranscriptEntry] = ()
    ) -> None:
        """Store `state` and `entries` in one statement, or raise VersionConflict."""
        key = check_save(state, expected_version)
        write = statements.Write(
            state=state,
            rows=rows_of(entries),
            turns=turns_of(key, entries),
            origin=self._origin,
            token=statements.new_token(),
        )
        await self._link.run(lambda link: statements.save(link, write))
        if self._feed.readers:
            self._feed.publish(key)

    async def check_writable(self) -> None:
        """Write something that nobody sees; raises StoreError where that fails."""
        await self._link.run(statements.write_nothing)

    async def decide(self, decision: Decision) -> None:
        """Record what an operator decided."""
        # The token is made once, outside the work that may be repeated.
        statement = decided.put(decision, uuid.uuid4().hex)
        await self._link.run(lambda link: statements.execute(link, statement))

    async def delete(self, key: SessionKey) -> bool:
        """Forget a session wholly; False where there was none."""
        check_key(key)
        was_there = False

        async def attempt(link: Connection) -> None:
            nonlocal was_there
            # A repeated attempt finds nothing where the first succeeded and only its answer was
            # lost.
            was_there = was_there or await statements.holds(link, key)
            await statements.delete(link, key)

        await self._link.run(attempt)
        return was_there

    async def put_label(self, key: SessionKey, label: SessionLabel) -> None:
        """Record a person's verdict; raises SessionNotFound."""
        check_key(key)
        token = statements.new_token()
        if not await self._link.run(lambda link: statements.put_label(link, key, label, token)):
            raise SessionNotFound("There is no such session to label.")

    async def redact(self, *, before: float) -> int:
        """Drop the text of transcript entries older than `before`; return how many."""
        total = 0
        # One session at a time, so that no save waits long for a lock.
        while (
            key := await self._link.run(lambda link: statements.next_with_text(link, before))
        ) is not None:
            total += await self._redact(key, before)
        return total

    def changes(self) -> AsyncIterator[SessionKey]:
        """Yield the key of each session as it is saved, by any guard of the fleet."""
        return self._feed.subscribe()

    async def close(self) -> None:
        """Release the connections."""
        await self._feed.close()
        self._link.close()

    async def _redact(self, key: SessionKey, before: float) -> int:
        count = await self._link.run(
            lambda link: statements.redact(link, key, before, self._origin)
        )
        self._feed.publish(key)
        return count

    async def _listen(self) -> None:
        since: float | None = None
        attempt = 0
        while self._feed.readers:
            try:
                async with await self._link.connect() as connection:
                    # Listening begins before the look back: a save between the two is then seen
                    # twice, not missed.
                    await connection.execute(statements.LISTEN)
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
        now = await statements.database_time(connection)
        if since is not None:
            for key in await statements.saved_since(connection, since, self._origin):
                self._feed.publish(key)
        return now

    async def _receive(self, connection: Connection, since: float) -> float:
        async for notice in connection.notifies(timeout=_LISTEN_CYCLE_S):
            saved = json.loads(notice.payload)
            since = max(since, float(saved["at"]))
            if saved["origin"] != self._origin:
                self._feed.publish(
                    SessionKey(tenant=saved["tenant"], session_id=saved["session_id"])
                )
        return since
