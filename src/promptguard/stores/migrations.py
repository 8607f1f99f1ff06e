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


_SQLITE_1 = (
    """CREATE TABLE guard_sessions (
        tenant TEXT NOT NULL, session_id TEXT NOT NULL, version INTEGER NOT NULL,
        mode INTEGER NOT NULL, updated REAL NOT NULL, state TEXT NOT NULL,
        origin TEXT NOT NULL, sequence INTEGER NOT NULL,
        PRIMARY KEY (tenant, session_id))""",
    "CREATE INDEX guard_sessions_newest ON guard_sessions (updated DESC, tenant, session_id)",
    "CREATE INDEX guard_sessions_tenant ON guard_sessions (tenant, updated DESC, session_id)",
    "CREATE INDEX guard_sessions_sequence ON guard_sessions (sequence)",
    # Numbers the saves, so that a poller can ask for those after the last one it saw.
    "CREATE TABLE guard_counter (value INTEGER NOT NULL)",
    "INSERT INTO guard_counter VALUES (0)",
    """CREATE TABLE guard_entries (
        tenant TEXT NOT NULL, session_id TEXT NOT NULL, position INTEGER NOT NULL,
        turn INTEGER NOT NULL, role TEXT NOT NULL, content BLOB, content_hash TEXT NOT NULL,
        timestamp REAL NOT NULL, verdict BLOB NOT NULL,
        PRIMARY KEY (tenant, session_id, position),
        FOREIGN KEY (tenant, session_id) REFERENCES guard_sessions ON DELETE CASCADE)""",
    # Partial, so that retention finds old text without passing over what was redacted.
    "CREATE INDEX guard_entries_text ON guard_entries (timestamp) WHERE content IS NOT NULL",
    """CREATE TABLE guard_labels (
        id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, session_id TEXT NOT NULL,
        timestamp REAL NOT NULL, label TEXT NOT NULL,
        FOREIGN KEY (tenant, session_id) REFERENCES guard_sessions ON DELETE CASCADE)""",
    "CREATE INDEX guard_labels_session ON guard_labels (tenant, session_id, timestamp)",
)

# Collation "C" sorts by code point, as SQLite and Python do, so every store pages alike.
_POSTGRES_1 = (
    """CREATE TABLE guard_sessions (
        tenant TEXT COLLATE "C" NOT NULL, session_id TEXT COLLATE "C" NOT NULL,
        version BIGINT NOT NULL, mode INTEGER NOT NULL, updated DOUBLE PRECISION NOT NULL,
        state TEXT NOT NULL, origin TEXT NOT NULL, writes TEXT NOT NULL,
        saved_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (tenant, session_id))""",
    "CREATE INDEX guard_sessions_newest ON guard_sessions (updated DESC, tenant, session_id)",
    "CREATE INDEX guard_sessions_tenant ON guard_sessions (tenant, updated DESC, session_id)",
    "CREATE INDEX guard_sessions_saved ON guard_sessions (saved_at)",
    """CREATE TABLE guard_entries (
        tenant TEXT COLLATE "C" NOT NULL, session_id TEXT COLLATE "C" NOT NULL,
        position BIGINT NOT NULL, turn BIGINT NOT NULL, role TEXT NOT NULL, content BYTEA,
        content_hash TEXT NOT NULL, timestamp DOUBLE PRECISION NOT NULL, verdict BYTEA NOT NULL,
        PRIMARY KEY (tenant, session_id, position),
        FOREIGN KEY (tenant, session_id) REFERENCES guard_sessions ON DELETE CASCADE)""",
    "CREATE INDEX guard_entries_text ON guard_entries (timestamp) WHERE content IS NOT NULL",
    """CREATE TABLE guard_labels (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, write TEXT NOT NULL UNIQUE,
        tenant TEXT COLLATE "C" NOT NULL, session_id TEXT COLLATE "C" NOT NULL,
        timestamp DOUBLE PRECISION NOT NULL, label TEXT NOT NULL,
        FOREIGN KEY (tenant, session_id) REFERENCES guard_sessions ON DELETE CASCADE)""",
    "CREATE INDEX guard_labels_session ON guard_labels (tenant, session_id, timestamp)",
)

# The first index covers the chart over time. The second covers what the few turns that were
# interfered with have in common; PostgreSQL bounds an index row, which a session id could exceed.
_INDEXES_2 = (
    """CREATE INDEX guard_turns_time
        ON guard_turns (tenant, second, is_demo, action, latency_ms)""",
    "CREATE INDEX guard_turns_labelled ON guard_turns (tenant, label) WHERE label <> ''",
)
_FLAGGED = """CREATE INDEX guard_turns_flagged ON guard_turns (
    tenant, second, is_demo, severity{} action, signal, reason, tags, language, key_name{})
    WHERE severity >= 2"""
_SQLITE_2 = (
    *(
        f"ALTER TABLE guard_sessions ADD COLUMN {column}"
        for column in (
            "risk REAL NOT NULL DEFAULT 0",
            "peak REAL NOT NULL DEFAULT 0",
            "turns INTEGER NOT NULL DEFAULT 0",
            "blocked INTEGER NOT NULL DEFAULT 0",
            "is_demo INTEGER NOT NULL DEFAULT 0",
            "key_name TEXT NOT NULL DEFAULT ''",
            "label TEXT NOT NULL DEFAULT ''",
        )
    ),
    # Sessions of schema 1 are sortable at once; their turns stay out of searches, and so do their
    # keys and labels: only versions before 0.4.0 wrote it, whose stores are not read.
    """UPDATE guard_sessions SET
        risk = coalesce(json_extract(state, '$.accumulated_risk'), 0),
        peak = coalesce(json_extract(state, '$.profile.peak_risk'), 0),
        turns = coalesce(json_extract(state, '$.profile.turns'), 0),
        blocked = coalesce(json_extract(state, '$.profile.blocked'), 0),
        is_demo = substr(session_id, 1, 5) = 'demo:'""",
    """CREATE TABLE guard_turns (
        tenant TEXT NOT NULL, session_id TEXT NOT NULL, turn INTEGER NOT NULL,
        position INTEGER NOT NULL, second INTEGER NOT NULL, action TEXT NOT NULL,
        severity INTEGER NOT NULL, turn_risk REAL NOT NULL, signal TEXT NOT NULL,
        reason TEXT NOT NULL, tags TEXT NOT NULL, language TEXT NOT NULL, key_name TEXT NOT NULL,
        latency_ms REAL, is_demo INTEGER NOT NULL, label TEXT NOT NULL, words TEXT,
        PRIMARY KEY (tenant, session_id, turn),
        FOREIGN KEY (tenant, session_id) REFERENCES guard_sessions ON DELETE CASCADE)""",
    *_INDEXES_2,
    _FLAGGED.format(",", ", session_id"),
)
_POSTGRES_2 = (
    """ALTER TABLE guard_sessions
        ADD COLUMN risk DOUBLE PRECISION NOT NULL DEFAULT 0,
        ADD COLUMN peak DOUBLE PRECISION NOT NULL DEFAULT 0,
        ADD COLUMN turns BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN blocked BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN is_demo INTEGER NOT NULL DEFAULT 0,
        ADD COLUMN key_name TEXT NOT NULL DEFAULT '',
        ADD COLUMN label TEXT NOT NULL DEFAULT ''""",
    """UPDATE guard_sessions SET
        risk = coalesce((state::json ->> 'accumulated_risk')::float8, 0),
        peak = coalesce((state::json -> 'profile' ->> 'peak_risk')::float8, 0),
        turns = coalesce((state::json -> 'profile' ->> 'turns')::bigint, 0),
        blocked = coalesce((state::json -> 'profile' ->> 'blocked')::bigint, 0),
        is_demo = CASE WHEN left(session_id, 5) = 'demo:' THEN 1 ELSE 0 END""",
    """CREATE TABLE guard_turns (
        tenant TEXT COLLATE "C" NOT NULL, session_id TEXT COLLATE "C" NOT NULL,
        turn BIGINT NOT NULL, position BIGINT NOT NULL, second BIGINT NOT NULL,
        action TEXT NOT NULL, severity INTEGER NOT NULL, turn_risk DOUBLE PRECISION NOT NULL,
        signal TEXT NOT NULL, reason TEXT NOT NULL, tags TEXT NOT NULL, language TEXT NOT NULL,
        key_name TEXT NOT NULL, latency_ms DOUBLE PRECISION, is_demo INTEGER NOT NULL,
        label TEXT NOT NULL, words TEXT,
        PRIMARY KEY (tenant, session_id, turn),
        FOREIGN KEY (tenant, session_id) REFERENCES guard_sessions ON DELETE CASCADE)""",
    *_INDEXES_2,
    _FLAGGED.format(") INCLUDE (", ""),
)

_DECISIONS_3 = """CREATE TABLE guard_decisions (
    number {number}, write TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, tenant TEXT NOT NULL,
    author TEXT NOT NULL, timestamp {float} NOT NULL, body TEXT NOT NULL)"""

MIGRATIONS = (
    Migration(
        number=1, purpose="sessions, entries, labels", sqlite=_SQLITE_1, postgres=_POSTGRES_1
    ),
    Migration(
        number=2,
        purpose="judged turns and sortable sessions",
        sqlite=_SQLITE_2,
        postgres=_POSTGRES_2,
    ),
    Migration(
        number=3,
        purpose="operators' decisions",
        # Numbers are never given twice: a withdrawal names an allowance by its number.
        sqlite=(_DECISIONS_3.format(number="INTEGER PRIMARY KEY AUTOINCREMENT", float="REAL"),),
        postgres=(
            _DECISIONS_3.format(
                number="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", float="DOUBLE PRECISION"
            ),
        ),
    ),
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
