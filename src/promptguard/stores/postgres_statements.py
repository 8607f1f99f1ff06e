"""The statements of the PostgreSQL store: one function per question, on an open connection."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from promptguard.protocols import SessionKey, SessionLabel
from promptguard.queries import StoredTurn
from promptguard.state import SessionState, is_demo
from promptguard.stores.postgres_connection import Connection
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
from promptguard.stores.statements import Statement

_T = TypeVar("_T")
LISTEN = "LISTEN promptguard_sessions"
_TOKEN_LENGTH = 16
_TOKENS_KEPT = 64
# A multiple of a token and its blank, so that the cut leaves no half token behind.
_WRITES_LENGTH = _TOKENS_KEPT * (_TOKEN_LENGTH + 1)
# Statements that began before a notification may commit after it.
_OVERLAP_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One save: what, by which store, and the token that tells it from any other."""

    state: SessionState
    rows: Sequence[EntryRow]
    turns: Sequence[StoredTurn]
    origin: str
    token: str


def new_token() -> str:
    """Return a token that no other write has."""
    return uuid.uuid4().hex[:_TOKEN_LENGTH]


_CREATE = """
WITH session AS (
    INSERT INTO guard_sessions
        (tenant, session_id, version, mode, updated, state, origin, risk, peak, turns, blocked,
        is_demo, key_name, writes)
    VALUES (%(tenant)s, %(session_id)s, %(version)s, %(mode)s, %(updated)s, %(state)s,
        %(origin)s, %(risk)s, %(peak)s, %(turn_count)s, %(blocked)s, %(is_demo)s, %(key_name)s,
        %(token)s)
    ON CONFLICT DO NOTHING
    RETURNING tenant, session_id, origin, saved_at
)"""
_REPLACE = """
WITH session AS (
    UPDATE guard_sessions SET version = %(version)s, mode = %(mode)s, updated = %(updated)s,
        state = %(state)s, origin = %(origin)s, risk = %(risk)s, peak = %(peak)s,
        turns = %(turn_count)s, blocked = %(blocked)s, saved_at = clock_timestamp(),
        writes = left(%(token)s || ' ' || writes, %(writes_length)s)
    WHERE tenant = %(tenant)s AND session_id = %(session_id)s AND version = %(expected)s
    RETURNING tenant, session_id, origin, saved_at
)"""
_ENTRIES_AND_NOTICE = """, entries AS (
    INSERT INTO guard_entries (tenant, session_id, position, turn, role, content,
        content_hash, timestamp, verdict)
    SELECT session.tenant, session.session_id, entry.*
    FROM session CROSS JOIN unnest(%(positions)s::bigint[], %(turns)s::bigint[], %(roles)s::text[],
        %(contents)s::bytea[], %(hashes)s::text[], %(timestamps)s::double precision[],
        %(verdicts)s::bytea[]) AS entry
    ON CONFLICT (tenant, session_id, position) DO UPDATE SET turn = excluded.turn,
        role = excluded.role, content = excluded.content, content_hash = excluded.content_hash,
        timestamp = excluded.timestamp, verdict = excluded.verdict
), judged AS (
    INSERT INTO guard_turns ({columns})
    SELECT session.tenant, session.session_id, turn.*
    FROM session CROSS JOIN unnest({arrays}) AS turn
    ON CONFLICT (tenant, session_id, turn) DO UPDATE SET {updates}
)
SELECT pg_notify('promptguard_sessions', json_build_object('tenant', tenant,
    'session_id', session_id, 'origin', origin, 'at', extract(epoch FROM saved_at))::text)
FROM session"""
_TURN_TYPES = {
    "turn": "bigint",
    "position": "bigint",
    "second": "bigint",
    "severity": "integer",
    "turn_risk": "double precision",
    "latency_ms": "double precision",
    "is_demo": "integer",
}
_PUT = TURN_COLUMNS.split(", ")[2:]
# A turn that is saved again keeps its label.
_ENTRIES_AND_NOTICE = _ENTRIES_AND_NOTICE.format(
    columns=TURN_COLUMNS,
    arrays=", ".join(f"%(turn_{name})s::{_TURN_TYPES.get(name, 'text')}[]" for name in _PUT),
    updates=", ".join(f"{name} = excluded.{name}" for name in _PUT[1:] if name != "label"),
)


async def ask(link: Connection, question: Question[_T]) -> _T:
    """Return the answer to a question."""
    answers = []
    for statement in question.statements:
        cursor = await link.execute(statement.for_postgres(), dict(statement.values))
        answers.append(await cursor.fetchall())
    return question.read(answers)


async def save(link: Connection, write: Write) -> None:
    """Put the state in the place of the version before it, or raise VersionConflict.

    Doing it again with the same token changes nothing and raises nothing.
    """
    # `check_save` has seen to it that the new version follows the expected one.
    expected = write.state.version - 1
    statement = (_REPLACE if expected else _CREATE) + _ENTRIES_AND_NOTICE
    cursor = await link.execute(statement.encode(), _parameters(write))
    if cursor.rowcount:
        return
    # Nothing written: either someone else was first, or this is our own save, repeated.
    cursor = await link.execute(
        "SELECT version, writes FROM guard_sessions WHERE tenant = %s AND session_id = %s",
        _named(key_of(write.state)),
    )
    row = await cursor.fetchone()
    version, writes = row or (0, "")
    if write.token not in writes.split():
        raise conflict(version, expected)


async def write_nothing(link: Connection) -> None:
    """Write the schema's number as it is, which only a database that takes writes does."""
    await link.execute("UPDATE guard_schema SET number = number")


async def holds(link: Connection, key: SessionKey) -> bool:
    """Say whether there is such a session, whatever its state."""
    cursor = await link.execute(
        "SELECT 1 FROM guard_sessions WHERE tenant = %s AND session_id = %s", _named(key)
    )
    return await cursor.fetchone() is not None


async def delete(link: Connection, key: SessionKey) -> None:
    """Forget a session, its entries and its labels."""
    await link.execute(
        "DELETE FROM guard_sessions WHERE tenant = %s AND session_id = %s", _named(key)
    )


async def put_label(link: Connection, key: SessionKey, label: SessionLabel, token: str) -> bool:
    """Record a verdict once per token; False where there is no such session."""
    cursor = await link.execute(
        """WITH session AS (
            UPDATE guard_sessions SET label = %(verdict)s
            WHERE tenant = %(tenant)s AND session_id = %(session_id)s
            RETURNING tenant, session_id
        ), turns AS (
            UPDATE guard_turns SET label = %(verdict)s
            WHERE tenant = %(tenant)s AND session_id = %(session_id)s
                AND turn = coalesce(%(turn)s::bigint, turn)
        )
        INSERT INTO guard_labels (write, tenant, session_id, timestamp, label)
        SELECT %(token)s, tenant, session_id, %(timestamp)s, %(label)s FROM session
        ON CONFLICT (write) DO UPDATE SET label = excluded.label""",
        {
            "verdict": label.verdict,
            "tenant": key.tenant,
            "session_id": key.session_id,
            "turn": label.turn,
            "token": token,
            "timestamp": label.timestamp,
            "label": label_json(label),
        },
    )
    return cursor.rowcount > 0


async def next_with_text(link: Connection, before: float) -> SessionKey | None:
    """Return a session that still has text older than `before`."""
    cursor = await link.execute(
        """SELECT tenant, session_id FROM guard_entries
        WHERE content IS NOT NULL AND timestamp < %s LIMIT 1""",
        (before,),
    )
    row = await cursor.fetchone()
    return None if row is None else SessionKey(tenant=row[0], session_id=row[1])


async def redact(link: Connection, key: SessionKey, before: float, origin: str) -> int:
    """Drop one session's text older than `before`; return how many entries lost theirs."""
    # The row is locked: a turn saved in between would be overwritten by the redacted state.
    async with link.transaction():
        cursor = await link.execute(
            """SELECT state FROM guard_sessions WHERE tenant = %s AND session_id = %s
            FOR UPDATE""",
            _named(key),
        )
        row = await cursor.fetchone()
        state = None if row is None else state_in(row[0])
        redacted = None if state is None else without_old_text(state, before)
        if redacted is not None:
            await save(
                link, Write(state=redacted, rows=(), turns=(), origin=origin, token=new_token())
            )
        await link.execute(
            """UPDATE guard_turns SET words = NULL WHERE tenant = %s AND session_id = %s
            AND second < %s""",
            (*_named(key), before),
        )
        cursor = await link.execute(
            """UPDATE guard_entries SET content = NULL WHERE tenant = %s AND session_id = %s
            AND content IS NOT NULL AND timestamp < %s""",
            (*_named(key), before),
        )
        return cursor.rowcount


async def execute(link: Connection, statement: Statement) -> None:
    """Do what a statement says."""
    await link.execute(statement.for_postgres(), dict(statement.values))


async def database_time(link: Connection) -> float:
    """Return the database's clock in seconds since the epoch."""
    cursor = await link.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
    row = await cursor.fetchone()
    assert row is not None
    return float(row[0])


async def saved_since(link: Connection, since: float, origin: str) -> tuple[SessionKey, ...]:
    """Return the sessions that others than `origin` saved after `since`, oldest save first."""
    cursor = await link.execute(
        """SELECT tenant, session_id FROM guard_sessions
        WHERE saved_at > to_timestamp(%s) AND origin <> %s ORDER BY saved_at""",
        (since - _OVERLAP_S, origin),
    )
    return tuple([SessionKey(tenant=row[0], session_id=row[1]) async for row in cursor])


def _parameters(write: Write) -> dict[str, object]:
    state, rows = write.state, write.rows
    return {
        "tenant": state.tenant,
        "session_id": state.session_id,
        "version": state.version,
        "expected": state.version - 1,
        "mode": int(state.mode),
        "updated": state.updated,
        "state": state.to_json(),
        "origin": write.origin,
        "token": write.token,
        "risk": state.accumulated_risk,
        "peak": state.profile.peak_risk,
        "turn_count": state.turn_count,
        "blocked": state.profile.blocked,
        "is_demo": int(is_demo(state.session_id)),
        "key_name": key_name(state.session_id),
        "writes_length": _WRITES_LENGTH,
        "positions": [row.position for row in rows],
        "turns": [row.turn for row in rows],
        "roles": [row.role for row in rows],
        "contents": [row.content for row in rows],
        "hashes": [row.content_hash for row in rows],
        "timestamps": [row.timestamp for row in rows],
        "verdicts": [row.verdict for row in rows],
        **_turn_arrays(write.turns),
    }


def _turn_arrays(turns: Sequence[StoredTurn]) -> dict[str, object]:
    values = [turn_values(turn)[2:] for turn in turns]
    return {f"turn_{name}": [row[at] for row in values] for at, name in enumerate(_PUT)}


def _named(key: SessionKey) -> tuple[str, str]:
    return (key.tenant, key.session_id)
