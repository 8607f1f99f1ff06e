"""The schema, step by step: one ordered list, each step written for both databases.

A step is never changed once released; a new need is a new step at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from promptguard.errors import StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step of the schema; `number` counts from 1 without gaps."""

    number: int
    purpose: str
    sqlite: tuple[str, ...]
    postgres: tuple[str, ...]


# What the two databases call alike things. Collation "C" sorts by code point, as SQLite and Python
# do, so every store pages alike.
_SQLITE = {"name": "TEXT", "big": "INTEGER", "real": "REAL", "bytes": "BLOB"}
_POSTGRES = {
    "name": 'TEXT COLLATE "C"',
    "big": "BIGINT",
    "real": "DOUBLE PRECISION",
    "bytes": "BYTEA",
}
_SESSIONS_1 = """CREATE TABLE guard_sessions (
    tenant {name} NOT NULL, session_id {name} NOT NULL, version {big} NOT NULL,
    mode INTEGER NOT NULL, updated {real} NOT NULL, state TEXT NOT NULL, origin TEXT NOT NULL, ROW,
    PRIMARY KEY (tenant, session_id))"""
_ENTRIES_1 = """CREATE TABLE guard_entries (
    tenant {name} NOT NULL, session_id {name} NOT NULL, position {big} NOT NULL,
    turn {big} NOT NULL, role TEXT NOT NULL, content {bytes}, content_hash TEXT NOT NULL,
    timestamp {real} NOT NULL, verdict {bytes} NOT NULL,
    PRIMARY KEY (tenant, session_id, position),
    FOREIGN KEY (tenant, session_id) REFERENCES guard_sessions ON DELETE CASCADE)"""
_LABELS_1 = """CREATE TABLE guard_labels (
    ROW, tenant {name} NOT NULL, session_id {name} NOT NULL,
    timestamp {real} NOT NULL, label TEXT NOT NULL,
    FOREIGN KEY (tenant, session_id) REFERENCES guard_sessions ON DELETE CASCADE)"""
_NEWEST_1 = (
    "CREATE INDEX guard_sessions_newest ON guard_sessions (updated DESC, tenant, session_id)",
    "CREATE INDEX guard_sessions_tenant ON guard_sessions (tenant, updated DESC, session_id)",
)
# Partial, so that retention finds old text without passing over what was redacted.
_OLD_TEXT_1 = """CREATE INDEX guard_entries_text ON guard_entries (timestamp)
    WHERE content IS NOT NULL"""
_BY_SESSION_1 = "CREATE INDEX guard_labels_session ON guard_labels (tenant, session_id, timestamp)"
_SQLITE_1 = (
    _SESSIONS_1.replace("ROW", "sequence INTEGER NOT NULL"),
    *_NEWEST_1,
    "CREATE INDEX guard_sessions_sequence ON guard_sessions (sequence)",
    # Numbers the saves, so that a poller can ask for those after the last one it saw.
    "CREATE TABLE guard_counter (value INTEGER NOT NULL)",
    "INSERT INTO guard_counter VALUES (0)",
    _ENTRIES_1,
    _OLD_TEXT_1,
    _LABELS_1.replace("ROW", "id INTEGER PRIMARY KEY"),
    _BY_SESSION_1,
)
_POSTGRES_1 = (
    _SESSIONS_1.replace(
        "ROW",
        "writes TEXT NOT NULL, saved_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()",
    ),
    *_NEWEST_1,
    "CREATE INDEX guard_sessions_saved ON guard_sessions (saved_at)",
    _ENTRIES_1,
    _OLD_TEXT_1,
    _LABELS_1.replace(
        "ROW", "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, write TEXT NOT NULL UNIQUE"
    ),
    _BY_SESSION_1,
)

_COLUMNS_2 = (
    "risk {real} NOT NULL DEFAULT 0",
    "peak {real} NOT NULL DEFAULT 0",
    "turns {big} NOT NULL DEFAULT 0",
    "blocked {big} NOT NULL DEFAULT 0",
    "is_demo INTEGER NOT NULL DEFAULT 0",
    "key_name TEXT NOT NULL DEFAULT ''",
    "label TEXT NOT NULL DEFAULT ''",
)
# The first index covers the chart over time. The second covers what the few turns that were
# interfered with have in common; PostgreSQL bounds an index row, which a session id could exceed.
_TURNS_2 = (
    """CREATE TABLE guard_turns (
        tenant {name} NOT NULL, session_id {name} NOT NULL, turn {big} NOT NULL,
        position {big} NOT NULL, second {big} NOT NULL, action TEXT NOT NULL,
        severity INTEGER NOT NULL, turn_risk {real} NOT NULL, signal TEXT NOT NULL,
        reason TEXT NOT NULL, tags TEXT NOT NULL, language TEXT NOT NULL, key_name TEXT NOT NULL,
        latency_ms {real}, is_demo INTEGER NOT NULL, label TEXT NOT NULL, words TEXT,
        PRIMARY KEY (tenant, session_id, turn),
        FOREIGN KEY (tenant, session_id) REFERENCES guard_sessions ON DELETE CASCADE)""",
    """CREATE INDEX guard_turns_time
        ON guard_turns (tenant, second, is_demo, action, latency_ms)""",
    "CREATE INDEX guard_turns_labelled ON guard_turns (tenant, label) WHERE label <> ''",
)
_FLAGGED_2 = """CREATE INDEX guard_turns_flagged ON guard_turns (
    tenant, second, is_demo, severityMORE)
    WHERE severity >= 2"""
_SQLITE_2 = (
    *(f"ALTER TABLE guard_sessions ADD COLUMN {column}" for column in _COLUMNS_2),
    # Sessions of schema 1 are sortable at once; their turns stay out of searches, and so do their
    # keys and labels: only versions before 0.4.0 wrote it, whose stores are not read.
    """UPDATE guard_sessions SET
        risk = coalesce(json_extract(state, '$.accumulated_risk'), 0),
        peak = coalesce(json_extract(state, '$.profile.peak_risk'), 0),
        turns = coalesce(json_extract(state, '$.profile.turns'), 0),
        blocked = coalesce(json_extract(state, '$.profile.blocked'), 0),
        is_demo = substr(session_id, 1, 5) = 'demo:'""",
    *_TURNS_2,
    _FLAGGED_2.replace("MORE", ", action, signal, reason, tags, language, key_name, session_id"),
)
_POSTGRES_2 = (
    f"ALTER TABLE guard_sessions {', '.join(f'ADD COLUMN {column}' for column in _COLUMNS_2)}",
    """UPDATE guard_sessions SET
        risk = coalesce((state::json ->> 'accumulated_risk')::float8, 0),
        peak = coalesce((state::json -> 'profile' ->> 'peak_risk')::float8, 0),
        turns = coalesce((state::json -> 'profile' ->> 'turns')::bigint, 0),
        blocked = coalesce((state::json -> 'profile' ->> 'blocked')::bigint, 0),
        is_demo = CASE WHEN left(session_id, 5) = 'demo:' THEN 1 ELSE 0 END""",
    *_TURNS_2,
    _FLAGGED_2.replace("MORE", ") INCLUDE ( action, signal, reason, tags, language, key_name"),
)

# Numbers are never given twice: a withdrawal names an allowance by its number.
_DECISIONS_3 = """CREATE TABLE guard_decisions (
    number NUMBER, write TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, tenant TEXT NOT NULL,
    author TEXT NOT NULL, timestamp {real} NOT NULL, body TEXT NOT NULL)"""
_SQLITE_3 = (_DECISIONS_3.replace("NUMBER", "INTEGER PRIMARY KEY AUTOINCREMENT"),)
_POSTGRES_3 = (_DECISIONS_3.replace("NUMBER", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),)
_STEPS = (
    ("sessions, entries, labels", _SQLITE_1, _POSTGRES_1),
    ("judged turns and sortable sessions", _SQLITE_2, _POSTGRES_2),
    ("operators' decisions", _SQLITE_3, _POSTGRES_3),
)
MIGRATIONS = tuple(
    Migration(
        number=number,
        purpose=purpose,
        sqlite=tuple(statement.format(**_SQLITE) for statement in sqlite),
        postgres=tuple(statement.format(**_POSTGRES) for statement in postgres),
    )
    for number, (purpose, sqlite, postgres) in enumerate(_STEPS, 1)
)


def pending(found: int, migrations: Sequence[Migration] = MIGRATIONS) -> tuple[Migration, ...]:
    """Return the steps still to apply to a schema at number `found`.

    Raises StoreError where the schema is newer than this version of the package knows.
    """
    newest = migrations[-1].number
    # A newer schema may hold what this version would overwrite or lose.
    if found > newest:
        raise StoreError(
            f"The session store has schema {found}, this version of promptguard knows up to "
            f"{newest}; upgrade promptguard, or point it at another store."
        )
    return tuple(step for step in migrations if step.number > found)
