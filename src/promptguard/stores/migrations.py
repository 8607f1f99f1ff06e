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
    "CREATE TABLE guard_counter (value INTEGER NOT NULL)",
    "INSERT INTO guard_counter VALUES (0)",
    """CREATE TABLE guard_entries (
        tenant TEXT NOT NULL, session_id TEXT NOT NULL, position INTEGER NOT NULL,
        turn INTEGER NOT NULL, role TEXT NOT NULL, content BLOB, content_hash TEXT NOT NULL,
        timestamp REAL NOT NULL, verdict BLOB NOT NULL,
        PRIMARY KEY (tenant, session_id, position),
        FOREIGN KEY (tenant, session_id) REFERENCES guard_sessions ON DELETE CASCADE)""",
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

MIGRATIONS = (
    Migration(
        number=1, purpose="sessions, entries, labels", sqlite=_SQLITE_1, postgres=_POSTGRES_1
    ),
)


def pending(found: int, migrations: Sequence[Migration] = MIGRATIONS) -> tuple[Migration, ...]:
    """Return the steps still to apply to a schema at number `found`.

    Raises StoreError where the schema is newer than this version of the package knows.
    """
    newest = migrations[-1].number
    if found > newest:
        raise StoreError(
            f"The session store has schema {found}, this version of promptguard knows up to "
            f"{newest}; upgrade promptguard, or point it at another store."
        )
    return tuple(step for step in migrations if step.number > found)
