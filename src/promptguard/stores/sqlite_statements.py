"""The statements of the SQLite store: one function per question, on an open connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from promptguard.protocols import SessionKey, SessionLabel
from promptguard.queries import StoredTurn
from promptguard.state import SessionState, is_demo
from promptguard.stores.questions import Question
from promptguard.stores.redaction import without_old_text
from promptguard.stores.rows import (
    TURN_COLUMNS,
    EntryRow,
    conflict,
    key_name,
    key_of,
    label_json,
    state_in,
    turn_values,
)
from promptguard.stores.sqlite_connection import transaction
from promptguard.stores.statements import Statement

_T = TypeVar("_T")
# Bounds how long one step holds the write lock; turns wait for it.
_REDACT_SESSIONS = 100
# A turn that is saved again keeps its label.
_PUT_TURN = (
    f"INSERT INTO guard_turns ({TURN_COLUMNS}) "
    f"VALUES ({', '.join('?' for _ in TURN_COLUMNS.split(', '))}) "
    "ON CONFLICT (tenant, session_id, turn) DO UPDATE SET "
    + ", ".join(
        f"{column} = excluded.{column}"
        for column in TURN_COLUMNS.split(", ")[3:]
        if column != "label"
    )
)


class Mark(NamedTuple):
    """How far a reader has seen: SQLite's own change mark, and the number of the last save."""

    data_version: int
    sequence: int


class Redacted(NamedTuple):
    """What one step of redaction did."""

    entries: int
    changed: tuple[SessionKey, ...]
    has_more: bool


def ask(connection: sqlite3.Connection, question: Question[_T]) -> _T:
    """Return the answer to a question."""
    return question.read(
        [connection.execute(s.sql, dict(s.values)).fetchall() for s in question.statements]
    )


def save(
    connection: sqlite3.Connection,
    state: SessionState,
    rows: Sequence[EntryRow],
    turns: Sequence[StoredTurn],
    origin: str,
) -> None:
    """Put `state` in the place of the version before it, or raise VersionConflict."""
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
        connection.executemany(_PUT_TURN, [turn_values(turn) for turn in turns])


def write_nothing(connection: sqlite3.Connection) -> None:
    """Write the counter of saves as it is, which takes the lock and reaches the file."""
    with transaction(connection):
        connection.execute("UPDATE guard_counter SET value = value")


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
        connection.execute(
            "UPDATE guard_sessions SET label = ? WHERE tenant = ? AND session_id = ?",
            (label.verdict, *_named(key)),
        )
        connection.execute(
            """UPDATE guard_turns SET label = ? WHERE tenant = ? AND session_id = ?
            AND turn = coalesce(?, turn)""",
            (label.verdict, *_named(key), label.turn),
        )
    return cursor.rowcount > 0


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


def execute(connection: sqlite3.Connection, statement: Statement) -> None:
    """Do what a statement says, wholly or not at all."""
    with transaction(connection):
        connection.execute(statement.sql, dict(statement.values))


def read_mark(connection: sqlite3.Connection) -> Mark:
    """Return where the file stands now."""
    data_version = connection.execute("PRAGMA data_version").fetchone()[0]
    sequence = connection.execute("SELECT value FROM guard_counter").fetchone()[0]
    return Mark(data_version=data_version, sequence=sequence)


def changed_since(
    connection: sqlite3.Connection, seen: Mark, origin: str
) -> tuple[Mark, tuple[SessionKey, ...]]:
    """Return the sessions saved after `seen` by others than `origin`, oldest save first."""
    # Read before the rows: a save in between is asked about again, not missed. It also changes with
    # our own writer's commits, hence the comparison of origins.
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
            (tenant, session_id, version, mode, updated, state, origin, risk, peak, turns,
            blocked, is_demo, key_name, sequence)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT value FROM guard_counter))
        ON CONFLICT (tenant, session_id) DO UPDATE SET version = excluded.version,
            mode = excluded.mode, updated = excluded.updated, state = excluded.state,
            origin = excluded.origin, risk = excluded.risk, peak = excluded.peak,
            turns = excluded.turns, blocked = excluded.blocked, sequence = excluded.sequence""",
        (
            *_named(key_of(state)),
            state.version,
            int(state.mode),
            state.updated,
            state.to_json(),
            origin,
            state.accumulated_risk,
            state.profile.peak_risk,
            state.turn_count,
            state.profile.blocked,
            int(is_demo(state.session_id)),
            key_name(state.session_id),
        ),
    )


def _redact_entries(connection: sqlite3.Connection, key: SessionKey, before: float) -> int:
    connection.execute(
        "UPDATE guard_turns SET words = NULL WHERE tenant = ? AND session_id = ? AND second < ?",
        (*_named(key), before),
    )
    return connection.execute(
        """UPDATE guard_entries SET content = NULL
        WHERE tenant = ? AND session_id = ? AND content IS NOT NULL AND timestamp < ?""",
        (*_named(key), before),
    ).rowcount


def _redact_state(
    connection: sqlite3.Connection, key: SessionKey, before: float, origin: str
) -> bool:
    row = connection.execute(
        "SELECT state FROM guard_sessions WHERE tenant = ? AND session_id = ?", _named(key)
    ).fetchone()
    state = None if row is None else state_in(row[0])
    redacted = None if state is None else without_old_text(state, before)
    if redacted is None:
        return False
    _write_state(connection, redacted, origin)
    return True


def _named(key: SessionKey) -> tuple[str, str]:
    return (key.tenant, key.session_id)
