"""How PostgreSQL is written to: a save, a label, and what a listener asks."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from promptguard.queries import StoredTurn
from promptguard.state import SessionState
from promptguard.stores.rows import SESSION, TURN, EntryRow, session_values, turn_values
from promptguard.stores.statements import upsert, values_of

LISTEN = "LISTEN promptguard_sessions"
_TOKEN_LENGTH = 16
_TOKENS_KEPT = 64
# Not text.
_TYPES = {
    "turn": "bigint",
    "position": "bigint",
    "content": "bytea",
    "timestamp": "double precision",
    "verdict": "bytea",
    "second": "bigint",
    "severity": "integer",
    "turn_risk": "double precision",
    "latency_ms": "double precision",
    "is_demo": "integer",
}


def _put(table: str, alias: str, columns: Sequence[str]) -> str:
    """Put arrays of values, called `alias` and the column's name, beside the session saved."""
    arrays = ", ".join(f":{alias}_{name}::{_TYPES.get(name, 'text')}[]" for name in columns)
    source = (
        f"SELECT session.tenant, session.session_id, {alias}.* "
        f"FROM session CROSS JOIN unnest({arrays}) AS {alias}"
    )
    return upsert(table, ("tenant", "session_id", *columns), source)


_REST = f"""RETURNING tenant, session_id, origin, saved_at
), entries AS ({_put("guard_entries", "entry", EntryRow._fields)}
), judged AS ({_put("guard_turns", "judged", TURN[2:])})
SELECT pg_notify('promptguard_sessions', json_build_object('tenant', tenant,
    'session_id', session_id, 'origin', origin, 'at', extract(epoch FROM saved_at))::text)
FROM session"""
CREATE = f"""WITH session AS (
    INSERT INTO guard_sessions ({", ".join(SESSION)}, origin, writes)
    VALUES ({values_of(SESSION)}, :origin, :token)
    ON CONFLICT DO NOTHING {_REST}"""
# The cut falls between two tokens: each has a blank behind it.
REPLACE = f"""WITH session AS (
    UPDATE guard_sessions SET {", ".join(f"{name} = :{name}" for name in SESSION[2:])},
        origin = :origin, saved_at = clock_timestamp(),
        writes = left(:token || ' ' || writes, {_TOKENS_KEPT * (_TOKEN_LENGTH + 1)})
    WHERE tenant = :tenant AND session_id = :session_id AND version = :expected {_REST}"""
PUT_LABEL = """WITH session AS (
    UPDATE guard_sessions SET label = :verdict
    WHERE tenant = :tenant AND session_id = :session_id RETURNING tenant, session_id
), turns AS (
    UPDATE guard_turns SET label = :verdict WHERE tenant = :tenant AND session_id = :session_id
        AND turn = coalesce(:turn::bigint, turn)
)
INSERT INTO guard_labels (write, tenant, session_id, timestamp, label)
SELECT :token, tenant, session_id, :timestamp, :label FROM session
ON CONFLICT (write) DO UPDATE SET label = excluded.label"""
# Statements that began before a notification may commit after it.
SAVED_SINCE = """SELECT tenant, session_id FROM guard_sessions
WHERE saved_at > to_timestamp(%s) - interval '10 seconds' AND origin <> %s ORDER BY saved_at"""
# Many at a time: each look passes over the places of what was dropped before.
WITH_OLD_TEXT = """SELECT DISTINCT tenant, session_id FROM (
    SELECT tenant, session_id FROM guard_entries
    WHERE content IS NOT NULL AND timestamp < :before LIMIT 1000) AS old"""


def new_token() -> str:
    """Return a token that no other write has."""
    return uuid.uuid4().hex[:_TOKEN_LENGTH]


def save_values(
    state: SessionState, rows: Sequence[EntryRow], turns: Sequence[StoredTurn], origin: str
) -> dict[str, Any]:
    """Return what CREATE or REPLACE saves, with the token that tells it from any other save."""
    judged = [turn_values(turn) for turn in turns]
    return {
        **session_values(state),
        "expected": state.version - 1,
        "origin": origin,
        "token": new_token(),
        **{f"entry_{name}": [row[at] for row in rows] for at, name in enumerate(EntryRow._fields)},
        **{f"judged_{name}": [row[at] for row in judged] for at, name in enumerate(TURN)},
    }
