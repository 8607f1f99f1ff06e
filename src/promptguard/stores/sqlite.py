"""Sessions in one SQLite file, shared safely by many processes of one machine."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import uuid
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from promptguard.decisions import Decision
from promptguard.errors import ConfigError, SessionNotFound
from promptguard.protocols import SessionKey, SessionLabel
from promptguard.state import SessionState, TranscriptEntry
from promptguard.stores import decision_statements as decided
from promptguard.stores import sqlite_statements as statements
from promptguard.stores.feed import ChangeFeed
from promptguard.stores.questions import Question, ReadingStore
from promptguard.stores.rows import check_key, check_save, rows_of, turns_of
from promptguard.stores.sqlite_connection import SqliteFile, SqliteThread, empty_log

_T = TypeVar("_T")


class SqliteStore(ReadingStore):
    """A SessionStore in a file: one thread writes, two read, all off the event loop.

    Saves by other processes are noticed by asking every `poll_s` seconds whether the file has
    changed, and only while someone listens.
    """

    def __init__(self, file: SqliteFile, *, poll_s: float = 0.5) -> None:
        self._file = file
        self._writer = SqliteThread(file)
        self._reader = SqliteThread(file, is_read_only=True)
        # A whole transcript takes long to read, and turns must not wait for it.
        self._long_reader = SqliteThread(file, is_read_only=True)
        self._poll_s = poll_s
        self._origin = uuid.uuid4().hex
        self._feed = ChangeFeed(self._watch)

    @classmethod
    def from_url(cls, url: str, *, must_exist: bool = False) -> SqliteStore:
        """Return the store for `sqlite:PATH` or `sqlite:///PATH`, `?synchronous=full` allowed."""
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ConfigError("This is no address; give SQLite a file as sqlite:PATH.") from None
        # Unlike the path's own method it leaves the name of nobody as it is.
        path = os.path.expanduser(unquote(parts.path))
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        synchronous = options.pop("synchronous", "normal").upper()
        # A netloc is what `sqlite://PATH` with two slashes gives; the path would lose its
        # beginning.
        if parts.netloc or not path or path == ":memory:" or "\0" in path:
            raise ConfigError("Give SQLite a file as sqlite:PATH; without a file use memory:")
        if options or parts.fragment or synchronous not in ("FULL", "NORMAL"):
            raise ConfigError("A sqlite: URL takes only ?synchronous=full or ?synchronous=normal.")
        return cls(SqliteFile(path=Path(path), synchronous=synchronous, must_exist=must_exist))

    async def _ask(self, question: Question[_T]) -> _T:
        thread = self._long_reader if question.is_long else self._reader
        return await thread.run(partial(statements.ask, question=question))

    async def save(
        self, state: SessionState, *, expected_version: int, entries: Sequence[TranscriptEntry] = ()
    ) -> None:
        """Store `state` and `entries` in one transaction, or raise VersionConflict."""
        key = check_save(state, expected_version)
        work = partial(
            statements.save,
            state=state,
            rows=rows_of(entries),
            turns=turns_of(key, entries),
            origin=self._origin,
        )
        await self._writer.run(work)
        if self._feed.readers:
            self._feed.publish(key)

    async def check_writable(self) -> None:
        """Write something that nobody sees; raises StoreError where that or the file is broken."""
        await self._writer.run(statements.write_nothing)
        # The write may have gone to the log alone; the file itself is looked at as well.
        await asyncio.to_thread(self._file.check_header)

    async def decide(self, decision: Decision) -> None:
        """Record what an operator decided."""
        statement = decided.put(decision, uuid.uuid4().hex)
        await self._writer.run(partial(statements.execute, statement=statement))

    async def delete(self, key: SessionKey) -> bool:
        """Forget a session wholly; False where there was none."""
        check_key(key)
        was_there = await self._writer.run(partial(statements.delete, key=key))
        if was_there:
            # Deleted text would else stay readable in the log until its next checkpoint.
            await self._writer.run(empty_log)
        return was_there

    async def put_label(self, key: SessionKey, label: SessionLabel) -> None:
        """Record a person's verdict; raises SessionNotFound."""
        check_key(key)
        if not await self._writer.run(partial(statements.put_label, key=key, label=label)):
            raise SessionNotFound("There is no such session to label.")

    async def redact(self, *, before: float) -> int:
        """Drop the text of transcript entries older than `before`; return how many.

        Works through a few sessions at a time, so that saves get in between.
        """
        total = 0
        while True:
            step = partial(statements.redact_some, before=before, origin=self._origin)
            redacted = await self._writer.run(step)
            total += redacted.entries
            for key in redacted.changed:
                self._feed.publish(key)
            if not redacted.has_more:
                break
        if total:
            await self._writer.run(empty_log)
        return total

    def changes(self) -> AsyncIterator[SessionKey]:
        """Yield the key of each session as it is saved, by any process on the file."""
        return self._feed.subscribe()

    async def close(self) -> None:
        """Finish what is under way and release the file."""
        # The feed first: its watch uses a reader.
        await self._feed.close()
        await self._writer.close()
        await self._reader.close()
        await self._long_reader.close()

    async def _watch(self) -> None:
        seen = await self._reader.run(statements.read_mark)
        while self._feed.readers:
            await asyncio.sleep(self._poll_s)
            seen, keys = await self._reader.run(partial(self._changed, seen=seen))
            for key in keys:
                self._feed.publish(key)

    def _changed(
        self, connection: sqlite3.Connection, seen: statements.Mark
    ) -> tuple[statements.Mark, tuple[SessionKey, ...]]:
        return statements.changed_since(connection, seen, self._origin)
