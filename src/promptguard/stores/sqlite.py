"""Sessions in one SQLite file, shared safely by many processes of one machine."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from promptguard.errors import ConfigError, SessionNotFound
from promptguard.protocols import SessionKey, SessionLabel
from promptguard.state import SessionState, TranscriptEntry
from promptguard.stores.feed import ChangeFeed
from promptguard.stores.questions import DELETE, ReadingStore, about
from promptguard.stores.rows import (
    SESSION,
    TURN,
    EntryRow,
    check_key,
    check_save,
    conflict,
    label_json,
    rows_of,
    session_values,
    state_in,
    turn_values,
    turns_of,
)
from promptguard.stores.sqlite_connection import SqliteFile, SqliteThread, empty_log, transaction
from promptguard.stores.statements import Rows, Statement, upsert, values_of

_T = TypeVar("_T")
# Bounds how long one step of redaction holds the write lock; turns wait for it.
_REDACT_SESSIONS = 100
_SESSION = (*SESSION, "origin", "sequence")
_PUT_SESSION = upsert("guard_sessions", _SESSION, f"VALUES ({values_of(_SESSION)})", key=2)
_ENTRY = ("tenant", "session_id", *EntryRow._fields)
_PUT_ENTRY = upsert("guard_entries", _ENTRY, f"VALUES ({', '.join('?' * len(_ENTRY))})")
_PUT_TURN = upsert("guard_turns", TURN, f"VALUES ({', '.join('?' * len(TURN))})")


class _Mark(NamedTuple):
    """How far a reader has seen: SQLite's own change mark, and the number of the last save."""

    data_version: int
    sequence: int


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

    async def _ask(self, asked: Sequence[Statement], read: Callable[[Sequence[Rows]], _T]) -> _T:
        thread = self._long_reader if any(each.is_long for each in asked) else self._reader
        return await thread.run(
            lambda link: read([link.execute(each.sql, each.values).fetchall() for each in asked])
        )

    async def _do(self, statement: Statement) -> int:
        return await self._write(
            lambda link: link.execute(statement.sql, statement.values).rowcount
        )

    async def _write(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return what `work` does, wholly or not at all."""

        def written(link: sqlite3.Connection) -> _T:
            with transaction(link):
                return work(link)

        return await self._writer.run(written)

    async def save(
        self, state: SessionState, *, expected_version: int, entries: Sequence[TranscriptEntry] = ()
    ) -> None:
        """Store `state` and `entries` in one transaction, or raise VersionConflict."""
        key = check_save(state, expected_version)
        rows, turns = rows_of(entries), turns_of(key, entries)

        def work(link: sqlite3.Connection) -> None:
            row = link.execute(
                "SELECT version FROM guard_sessions WHERE tenant = ? AND session_id = ?",
                _named(key),
            ).fetchone()
            found = row[0] if row else 0
            if found != expected_version:
                raise conflict(found, expected_version)
            self._put(link, state)
            link.executemany(_PUT_ENTRY, [(*_named(key), *row) for row in rows])
            link.executemany(_PUT_TURN, map(turn_values, turns))

        await self._write(work)
        if self._feed.readers:
            self._feed.publish(key)

    async def check_writable(self) -> None:
        """Write something that nobody sees; raises StoreError where that or the file is broken."""
        # The counter of saves as it is: that takes the lock and reaches the file.
        await self._do(Statement(sql="UPDATE guard_counter SET value = value"))
        # The write may have gone to the log alone; the file itself is looked at as well.
        await asyncio.to_thread(self._file.check_header)

    async def delete(self, key: SessionKey) -> bool:
        """Forget a session wholly; False where there was none."""
        was_there = await self._do(about(key, DELETE))
        if was_there:
            # Deleted text would else stay readable in the log until its next checkpoint.
            await self._writer.run(empty_log)
        return bool(was_there)

    async def put_label(self, key: SessionKey, label: SessionLabel) -> None:
        """Record a person's verdict; raises SessionNotFound."""
        check_key(key)

        def work(link: sqlite3.Connection) -> None:
            found = link.execute(
                "UPDATE guard_sessions SET label = ? WHERE tenant = ? AND session_id = ?",
                (label.verdict, *_named(key)),
            )
            if not found.rowcount:
                raise SessionNotFound("There is no such session to label.")
            link.execute(
                "INSERT INTO guard_labels (tenant, session_id, timestamp, label)"
                " VALUES (?, ?, ?, ?)",
                (*_named(key), label.timestamp, label_json(label)),
            )
            link.execute(
                """UPDATE guard_turns SET label = ? WHERE tenant = ? AND session_id = ?
                AND turn = coalesce(?, turn)""",
                (label.verdict, *_named(key), label.turn),
            )

        await self._write(work)

    async def redact(self, *, before: float) -> int:
        """Drop the text of transcript entries older than `before`; return how many.

        Works through a few sessions at a time, so that saves get in between.
        """
        total, has_more = 0, True
        while has_more:
            found = await self._write(lambda link: self._redact_some(link, before))
            total += sum(count for _, count, _ in found)
            for key, _, is_changed in found:
                if is_changed:
                    self._feed.publish(key)
            has_more = len(found) == _REDACT_SESSIONS
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
        for thread in (self._writer, self._reader, self._long_reader):
            await thread.close()

    def _put(self, link: sqlite3.Connection, state: SessionState) -> None:
        link.execute("UPDATE guard_counter SET value = value + 1")
        sequence = link.execute("SELECT value FROM guard_counter").fetchone()[0]
        link.execute(
            _PUT_SESSION, {**session_values(state), "origin": self._origin, "sequence": sequence}
        )

    def _redact_some(
        self, link: sqlite3.Connection, before: float
    ) -> list[tuple[SessionKey, int, bool]]:
        """Drop old text of a few sessions: whose, from how many entries, whether from the state."""
        found = link.execute(
            """SELECT DISTINCT tenant, session_id FROM guard_entries
            WHERE content IS NOT NULL AND timestamp < ? LIMIT ?""",
            (before, _REDACT_SESSIONS),
        ).fetchall()
        return [
            (SessionKey(tenant=t, session_id=s), *self._redact(link, t, s, before))
            for t, s in found
        ]

    def _redact(
        self, link: sqlite3.Connection, tenant: str, session_id: str, before: float
    ) -> tuple[int, bool]:
        old = (tenant, session_id, before)
        link.execute(
            """UPDATE guard_turns SET words = NULL
            WHERE tenant = ? AND session_id = ? AND second < ?""",
            old,
        )
        count = link.execute(
            """UPDATE guard_entries SET content = NULL
            WHERE tenant = ? AND session_id = ? AND timestamp < ? AND content IS NOT NULL""",
            old,
        ).rowcount
        row = link.execute(
            "SELECT state FROM guard_sessions WHERE tenant = ? AND session_id = ?", old[:2]
        ).fetchone()
        state = state_in(row[0]) if row else None
        redacted = None if state is None else state.without_old_text(before)
        if redacted is not None:
            self._put(link, redacted)
        return count, redacted is not None

    async def _watch(self) -> None:
        seen = await self._reader.run(_read_mark)
        while self._feed.readers:
            await asyncio.sleep(self._poll_s)
            seen, keys = await self._reader.run(partial(self._changed, seen=seen))
            for key in keys:
                self._feed.publish(key)

    def _changed(self, link: sqlite3.Connection, seen: _Mark) -> tuple[_Mark, list[SessionKey]]:
        """Return the sessions that others saved after `seen`, oldest save first."""
        # Read before the rows: a save in between is asked about again, not missed. It also changes
        # with our own writer's commits, hence the comparison of origins.
        data_version = link.execute("PRAGMA data_version").fetchone()[0]
        if data_version == seen.data_version:
            return seen, []
        rows = link.execute(
            """SELECT tenant, session_id, origin, sequence FROM guard_sessions
            WHERE sequence > ? ORDER BY sequence""",
            (seen.sequence,),
        ).fetchall()
        newest = rows[-1][3] if rows else seen.sequence
        keys = [
            SessionKey(tenant=row[0], session_id=row[1]) for row in rows if row[2] != self._origin
        ]
        return _Mark(data_version=data_version, sequence=newest), keys


def _read_mark(link: sqlite3.Connection) -> _Mark:
    """Return where the file stands now."""
    data_version = link.execute("PRAGMA data_version").fetchone()[0]
    sequence = link.execute("SELECT value FROM guard_counter").fetchone()[0]
    return _Mark(data_version=data_version, sequence=sequence)


def _named(key: SessionKey) -> tuple[str, str]:
    return (key.tenant, key.session_id)
