"""Judgements kept in a SQLite file, so that the same question is paid for once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from promptguard.core.neutrosophic import Neutrosophic
from promptguard.errors import InputError
from promptguard.evaluators.registry import Metered, is_price_known
from promptguard.protocols import Judge, LayerJudgement, LayerTask
from promptguard.usage import Usage

_LOG = logging.getLogger(__name__)
_BUSY_S = 5.0
_ROW_OVERHEAD_BYTES = 200
# Below the limit, or every further entry would evict again.
_EVICT_TO = 0.9
# The total is kept by triggers, so that every process sees one sum and no query scans the table.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS judgement (
  key TEXT PRIMARY KEY, value TEXT NOT NULL, created REAL NOT NULL, used REAL NOT NULL,
  size INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS judgement_used ON judgement (used);
CREATE TABLE IF NOT EXISTS total (id INTEGER PRIMARY KEY CHECK (id = 1), bytes INTEGER NOT NULL);
INSERT OR IGNORE INTO total VALUES (1, 0);
CREATE TRIGGER IF NOT EXISTS judgement_in AFTER INSERT ON judgement
  BEGIN UPDATE total SET bytes = bytes + new.size; END;
CREATE TRIGGER IF NOT EXISTS judgement_out AFTER DELETE ON judgement
  BEGIN UPDATE total SET bytes = bytes - old.size; END;
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStatus:
    """What a cache holds, and how often its file failed in this process."""

    entries: int
    size_bytes: int
    faults: int


class JudgementCache:
    """Entries by key, with an age limit and a size limit; safe for threads and processes.

    A cache that fails is a cache that misses: a fault of the file never fails an evaluation.
    A corrupt file is put aside as `PATH.corrupt` and begun anew.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        ttl_s: float,
        max_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = Path(path)
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._faults = 0

    def get(self, key: str) -> LayerJudgement | None:
        """Return the entry as a hit that cost nothing, or None."""
        raw = self._guarded(lambda db: self._read(db, key), default=None)
        return None if raw is None else _judgement(raw)

    def put(self, key: str, judgement: LayerJudgement) -> None:
        """Keep a judgement, and drop the least recently used ones where it gets too much."""
        raw = json.dumps([*judgement.value.as_tuple(), judgement.reasoning])
        self._guarded(lambda db: self._write(db, key, raw), default=None)

    def status(self) -> CacheStatus:
        """Return what the cache holds."""
        entries, size = self._guarded(_count, default=(0, 0))
        return CacheStatus(entries=entries, size_bytes=size, faults=self._faults)

    def close(self) -> None:
        """Close the file; the cache opens it again when it is used."""
        with self._lock:
            self._drop_connection()

    def _read(self, db: sqlite3.Connection, key: str) -> str | None:
        now = self._clock()
        row = db.execute("SELECT value, created FROM judgement WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        if row[1] + self._ttl_s <= now:
            # By its age too: another process may have written it anew meanwhile.
            db.execute("DELETE FROM judgement WHERE key = ? AND created = ?", (key, row[1]))
            return None
        db.execute("UPDATE judgement SET used = ? WHERE key = ?", (now, key))
        return str(row[0])

    def _write(self, db: sqlite3.Connection, key: str, raw: str) -> None:
        now = self._clock()
        size = len(raw.encode()) + len(key) + _ROW_OVERHEAD_BYTES
        # The lock for writing at once: one taken after a read fails where another process wrote.
        db.execute("BEGIN IMMEDIATE")
        with db:
            # REPLACE would skip the delete trigger and the total would drift.
            db.execute("DELETE FROM judgement WHERE key = ?", (key,))
            db.execute("INSERT INTO judgement VALUES (?, ?, ?, ?, ?)", (key, raw, now, now, size))
            if _total(db) > self._max_bytes:
                self._evict(db)

    def _evict(self, db: sqlite3.Connection) -> None:
        surplus = _total(db) - self._max_bytes * _EVICT_TO
        gone = []
        for key, size in db.execute("SELECT key, size FROM judgement ORDER BY used"):
            if surplus <= 0:
                break
            gone.append((key,))
            surplus -= size
        db.executemany("DELETE FROM judgement WHERE key = ?", gone)

    def _guarded(self, work: Callable[[sqlite3.Connection], T], *, default: T) -> T:
        with self._lock:
            # Once more for a connection that was lost, or a file that was just put aside.
            for _ in range(2):
                try:
                    return work(self._open())
                except (sqlite3.Error, OSError) as error:
                    self._faults += 1
                    _LOG.warning("The judgement cache failed: %s", type(error).__name__)
                    self._drop_connection()
                    if _is_corrupt(error):
                        self._set_aside()
            return default

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if not self._path.exists():
                # Reasoning may quote the text under judgement: the file is for its owner only.
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            db = sqlite3.connect(
                self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._connection = db
            db.execute("PRAGMA journal_mode=WAL")
            # A cache may lose its last entries to a power cut; it need not wait for the disk.
            db.execute("PRAGMA synchronous=NORMAL")
            db.executescript(_SCHEMA)
        return self._connection

    def _drop_connection(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _set_aside(self) -> None:
        if self._is_sound():
            return  # another process was faster and began a new file
        for suffix in ("-wal", "-shm"):
            with suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink()
        with suppress(OSError):
            self._path.replace(self._path.with_name(self._path.name + ".corrupt"))

    def _is_sound(self) -> bool:
        try:
            with closing(sqlite3.connect(self._path, timeout=_BUSY_S)) as db:
                return bool(db.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
        except sqlite3.Error:
            return False


class CachingJudge:
    """Asks the judge only what the cache does not know."""

    def __init__(
        self, judge: Judge, cache: JudgementCache, *, version_of: Callable[[str], str]
    ) -> None:
        self._judge = judge
        self._cache = cache
        self._version_of = version_of

    @property
    def name(self) -> str:
        """The name of the judge behind the cache."""
        return self._judge.name

    @property
    def is_price_known(self) -> bool:
        """Whether the cost of a call to the judge will be known."""
        return is_price_known(self._judge)

    @property
    def is_free(self) -> bool:
        """Whether a call to the judge costs nothing."""
        return isinstance(self._judge, Metered) and self._judge.is_free

    async def judge(self, task: LayerTask) -> LayerJudgement:
        """Return the kept judgement, marked as cached and free of cost, or a new one."""
        key = cache_key(task, model=self.name, version=self._version_of(task.evaluation_type))
        found = await asyncio.to_thread(self._cache.get, key)
        if found is not None:
            return replace(found, evaluation_type=task.evaluation_type, model=self.name)
        judgement = await self._judge.judge(task)
        await asyncio.to_thread(self._cache.put, key, judgement)
        return judgement


def cache_key(task: LayerTask, *, model: str, version: str) -> str:
    """Return the hash of everything a judgement depends on."""
    asked = [task.content, task.layer, str(task.turn), task.context]
    parts = [task.evaluation_type, version, model, *asked]
    # As JSON, so that no two lists of parts can run together to the same text.
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _judgement(raw: str) -> LayerJudgement | None:
    try:
        truth, indeterminacy, falsehood, reasoning = json.loads(raw)
        value = Neutrosophic(truth, indeterminacy, falsehood)
    except (ValueError, TypeError, InputError):
        return None
    return LayerJudgement(
        value=value,
        evaluation_type="",
        model="",
        reasoning=str(reasoning),
        usage=Usage(),
        is_cached=True,
    )


def _total(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT bytes FROM total").fetchone()[0])


def _count(db: sqlite3.Connection) -> tuple[int, int]:
    return int(db.execute("SELECT COUNT(*) FROM judgement").fetchone()[0]), _total(db)


def _is_corrupt(error: Exception) -> bool:
    # A locked file or a full disk raises a subclass, and the file is sound.
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.OperationalError | sqlite3.ProgrammingError | sqlite3.IntegrityError
    )
