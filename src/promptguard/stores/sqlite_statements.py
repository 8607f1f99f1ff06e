"""What is said to SQLite: one function per question, on an open connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from promptguard.protocols import SessionKey, SessionLabel, SessionQuery
from promptguard.state import SessionState, TranscriptEntry
from promptguard.stores.checks import conflict, key_of
from promptguard.stores.redaction import without_old_text
from promptguard.stores.rows import EntryRow, entry_of, label_json, label_of
from promptguard.stores.sqlite_file import transaction

_REDACT_SESSIONS = 100


class Mark(NamedTuple):
    """How far a reader has seen: SQLite's own change mark, and the number of the last save."""

    data_version: int
    sequence: int


class Redacted(NamedTuple):
    """What one step of redaction did."""

    entries: int
    changed: tuple[SessionKey, ...]
    has_more: bool


def load(connection: sqlite3.Connection, key: SessionKey) -> SessionState | None:
    """Return the newest state, or None."""
    row = connection.execute(
        "SELECT state FROM guard_sessions WHERE tenant = ? AND session_id = ?", _named(key)
    ).fetchone()
    return None if row is None else SessionState.from_json(row[0])


def save(
    connection: sqlite3.Connection, state: SessionState, rows: Sequence[EntryRow], origin: str
) -> None:
    """Put `state` in the place of the version before it, with `rows`, or raise VersionConflict."""
    key = _named(key_of(state))
    with transaction(connection):
        found = connection.execute(
            "SELECT version FROM guard_sessions WHERE tenant = ? AND session_id = ?", key
        ).fetchone()
        expected = state.version - 1
        if (found[0] if found else 0) != expected:
            raise conflict(found[0] if found else 0, expected)
        _write_state(connection, state, origin)
        connection.executemany(
            """INSERT INTO guard_entries (tenant, session_id, position, turn, role, content,
                content_hash, timestamp, verdict) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (tenant, session_id, position) DO UPDATE SET turn = excluded.turn,
                role = excluded.role, content = excluded.content,
                content_hash = excluded.content_hash, timestamp = excluded.timestamp,
                verdict = excluded.verdict""",
            [(*key, *row) for row in rows],
        )


def transcript(connection: sqlite3.Connection, key: SessionKey) -> tuple[TranscriptEntry, ...]:
    """Return every stored message in order."""
    rows = connection.execute(
        """SELECT position, turn, role, content, content_hash, timestamp, verdict
        FROM guard_entries WHERE tenant = ? AND session_id = ? ORDER BY position""",
        _named(key),
    )
    return tuple(entry_of(EntryRow(*row)) for row in rows)


def sessions(connection: sqlite3.Connection, query: SessionQuery) -> tuple[SessionState, ...]:
    """Return the newest states that fit the query."""
    shared = (query.min_mode, query.contains, query.limit, query.offset)
    if query.tenant is None:
        rows = connection.execute(
            """SELECT state FROM guard_sessions
            WHERE mode >= ? AND instr(session_id, ?) > 0
            ORDER BY updated DESC, tenant, session_id LIMIT ? OFFSET ?""",
            shared,
        )
    else:
        rows = connection.execute(
            """SELECT state FROM guard_sessions
            WHERE tenant = ? AND mode >= ? AND instr(session_id, ?) > 0
            ORDER BY updated DESC, session_id LIMIT ? OFFSET ?""",
            (query.tenant, *shared),
        )
    return tuple(SessionState.from_json(row[0]) for row in rows)


def delete(connection: sqlite3.Connection, key: SessionKey) -> bool:
    """Forget a session, its entries and its labels; False where there was none."""
    with transaction(connection):
        cursor = connection.execute(
            "DELETE FROM guard_sessions WHERE tenant = ? AND session_id = ?", _named(key)
        )
    return cursor.rowcount > 0


def put_label(connection: sqlite3.Connection, key: SessionKey, label: SessionLabel) -> bool:
    """Record a verdict; False where there is no such session."""
    with transaction(connection):
        cursor = connection.execute(
            """INSERT INTO guard_labels (tenant, session_id, timestamp, label)
            SELECT tenant, session_id, ?, ? FROM guard_sessions
            WHERE tenant = ? AND session_id = ?""",
            (label.timestamp, label_json(label), *_named(key)),
        )
    return cursor.rowcount > 0


def labels(connection: sqlite3.Connection, key: SessionKey) -> tuple[SessionLabel, ...]:
    """Return the verdicts, oldest first."""
    rows = connection.execute(
        """SELECT label FROM guard_labels WHERE tenant = ? AND session_id = ?
        ORDER BY timestamp, id""",
        _named(key),
    )
    return tuple(label_of(row[0]) for row in rows)


def redact_some(connection: sqlite3.Connection, before: float, origin: str) -> Redacted:
    """Drop text older than `before` from the next few sessions that have any."""
    with transaction(connection):
        found = connection.execute(
            """SELECT DISTINCT tenant, session_id FROM guard_entries
            WHERE content IS NOT NULL AND timestamp < ? LIMIT ?""",
            (before, _REDACT_SESSIONS),
        ).fetchall()
        keys = tuple(SessionKey(tenant=row[0], session_id=row[1]) for row in found)
        entries = sum(_redact_entries(connection, key, before) for key in keys)
        changed = tuple(key for key in keys if _redact_state(connection, key, before, origin))
    return Redacted(entries=entries, changed=changed, has_more=len(keys) == _REDACT_SESSIONS)


def read_mark(connection: sqlite3.Connection) -> Mark:
    """Return where the file stands now."""
    data_version = connection.execute("PRAGMA data_version").fetchone()[0]
    sequence = connection.execute("SELECT value FROM guard_counter").fetchone()[0]
    return Mark(data_version=data_version, sequence=sequence)


def changed_since(
    connection: sqlite3.Connection, seen: Mark, origin: str
) -> tuple[Mark, tuple[SessionKey, ...]]:
    """Return the sessions saved after `seen` by others than `origin`, oldest save first."""
    data_version = connection.execute("PRAGMA data_version").fetchone()[0]
    if data_version == seen.data_version:
        return seen, ()
    rows = connection.execute(
        """SELECT tenant, session_id, origin, sequence FROM guard_sessions
        WHERE sequence > ? ORDER BY sequence""",
        (seen.sequence,),
    ).fetchall()
    newest = rows[-1][3] if rows else seen.sequence
    keys = tuple(SessionKey(tenant=row[0], session_id=row[1]) for row in rows if row[2] != origin)
    return Mark(data_version=data_version, sequence=newest), keys


def _write_state(connection: sqlite3.Connection, state: SessionState, origin: str) -> None:
    connection.execute("UPDATE guard_counter SET value = value + 1")
    connection.execute(
        """INSERT INTO guard_sessions
            (tenant, session_id, version, mode, updated, state, origin, sequence)
        VALUES (?, ?, ?, ?, ?, ?, ?, (SELECT value FROM guard_counter))
        ON CONFLICT (tenant, session_id) DO UPDATE SET version = excluded.version,
            mode = excluded.mode, updated = excluded.updated, state = excluded.state,
            origin = excluded.origin, sequence = excluded.sequence""",
        (
            *_named(key_of(state)),
            state.version,
            int(state.mode),
            state.updated,
            state.to_json(),
            origin,
        ),
    )


def _redact_entries(connection: sqlite3.Connection, key: SessionKey, before: float) -> int:
    return connection.execute(
        """UPDATE guard_entries SET content = NULL
        WHERE tenant = ? AND session_id = ? AND content IS NOT NULL AND timestamp < ?""",
        (*_named(key), before),
    ).rowcount


def _redact_state(
    connection: sqlite3.Connection, key: SessionKey, before: float, origin: str
) -> bool:
    state = load(connection, key)
    redacted = None if state is None else without_old_text(state, before)
    if redacted is None:
        return False
    _write_state(connection, redacted, origin)
    return True


def _named(key: SessionKey) -> tuple[str, str]:
    return (key.tenant, key.session_id)
