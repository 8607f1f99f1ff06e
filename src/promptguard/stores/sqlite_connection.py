"""Connections to the SQLite file: settings, schema, one thread each, and errors with advice."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from promptguard.errors import StoreError
from promptguard.stores.migrations import MIGRATIONS, Migration, pending
from promptguard.stores.rows import closed

APPLICATION_ID = 0x50475352  # "PGSR": tells our files from other programs' databases
_WAL_RETRY_S = 0.02
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteFile:
    """Which file, and how carefully it is written.

    `synchronous` NORMAL leaves it to the operating system when a save reaches the disk: a crash
    of the process loses nothing, a power cut may lose the last saves. FULL waits for the disk.
    With `must_exist` a file that is not there is an error instead of a new store.
    """

    path: Path
    synchronous: str = "NORMAL"
    busy_timeout_s: float = 10.0
    must_exist: bool = False

    def connect(self, migrations: Sequence[Migration] = MIGRATIONS) -> sqlite3.Connection:
        """Return a connection to the file, made and brought to the newest schema if need be."""
        connection: sqlite3.Connection | None = None
        # Not the path's own methods: these fail where it cannot be looked at.
        if self.must_exist and not os.path.exists(self.path):
            raise StoreError(
                f"There is no store at {self.path.absolute()}; check the path, or name the store "
                "as conversation.store in the configuration."
            )
        try:
            _create_private(self.path)
            # Transactions are written out: the module's own would begin without the write lock.
            connection = sqlite3.connect(
                self.path, timeout=self.busy_timeout_s, isolation_level=None
            )
            # Asked before anything is set: even the journal mode would change another program's
            # file.
            _check_owner(connection, self.path)
            self._configure(connection)
            migrate(connection, migrations)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, (sqlite3.Error, OSError)):
                raise self.explain(error) from None
            raise
        return connection

    def inode(self) -> int:
        """Return what tells this file from another one under its name; 0 where there is none."""
        try:
            return self.path.stat().st_ino
        except OSError:
            return 0

    def check_in_place(self, inode: int) -> None:
        """Raise StoreError where the file that was opened is no longer under its name."""
        if self.inode() != inode:
            raise StoreError(
                f"{self.path} was removed or replaced while it was open; put it back and restart."
            )

    def check_header(self) -> None:
        """Raise StoreError where the file no longer begins as a database does.

        An open connection goes on with the pages that it holds and notices nothing.
        """
        # Asked of SQLite, without its log: to close the file ourselves would drop the locks that it
        # holds for this process, and another one, ending, would clear the log away.
        name = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(name, uri=True)) as alone:
                alone.execute("PRAGMA user_version")
            is_empty = not os.path.getsize(self.path)
        except (sqlite3.Error, OSError) as error:
            # Pages that are just being moved out of the log are missing at the end, and no damage.
            if getattr(error, "sqlite_errorname", "") != "SQLITE_CORRUPT":
                raise self.explain(error) from None
        else:
            if is_empty:
                raise StoreError(f"{self.path} {_ADVICE['SQLITE_CORRUPT']}")

    def explain(self, error: sqlite3.Error | OSError) -> StoreError:
        """Return what is wrong in words that say what to do."""
        if os.path.isdir(self.path):
            return StoreError(f"{self.path} is a folder; name the file in it: {self.path}/NAME.db.")
        if isinstance(error, OSError):
            return StoreError(
                f"Cannot create {self.path} ({error.strerror}); choose a folder that exists and "
                "can be written."
            )
        name = getattr(error, "sqlite_errorname", "") or type(error).__name__
        for prefix, advice in _ADVICE.items():
            if name.startswith(prefix):
                return StoreError(f"{self.path} {advice}")
        return StoreError(f"{self.path} cannot be used ({name}); run `promptguard doctor`.")

    def _configure(self, connection: sqlite3.Connection) -> None:
        self._switch_to_wal(connection)
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        # Off by default and per connection; deleting a session relies on the cascade.
        connection.execute("PRAGMA foreign_keys = ON")
        # Forgotten text is overwritten in the file, not merely unlinked.
        connection.execute("PRAGMA secure_delete = ON")

    def _switch_to_wal(self, connection: sqlite3.Connection) -> None:
        # SQLite does not wait for other connections while it changes the journal mode.
        deadline = time.monotonic() + self.busy_timeout_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
                if not is_busy or time.monotonic() >= deadline:
                    raise
                time.sleep(_WAL_RETRY_S)
            else:
                return


class SqliteThread:
    """Runs functions on a connection, one after the other, in the order they were given.

    The connection is opened at the first use. A cancelled caller does not stop a function that
    has begun: it is finished or rolled back as a whole.
    """

    def __init__(self, file: SqliteFile, *, is_read_only: bool = False) -> None:
        self._file = file
        self._is_read_only = is_read_only
        self._connection: sqlite3.Connection | None = None
        # One worker: a connection of sqlite3 may only be used by the thread that made it.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="promptguard-sqlite")
        self._is_closed = False
        self._inode = 0

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return `work(connection)`; raises StoreError where SQLite fails."""
        if self._is_closed:
            raise closed()
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._call, work)

    async def close(self) -> None:
        """Finish what was given, then release the file."""
        if self._is_closed:
            return
        self._is_closed = True
        # Closed in its own thread, after all work that was given before.
        await asyncio.get_running_loop().run_in_executor(self._executor, self._release)
        self._executor.shutdown(wait=False)

    def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._open()
            # SQLite goes on in a file that was removed, and everything is lost at its end.
            self._file.check_in_place(self._inode)
            return work(self._connection)
        except sqlite3.Error as error:
            raise self._file.explain(error) from None

    def _open(self) -> sqlite3.Connection:
        connection = self._file.connect()
        self._inode = self._file.inode()
        if self._is_read_only:
            # Not opened read-only: a reader may be the first to create and migrate the file.
            connection.execute("PRAGMA query_only = ON")
        return connection

    def _release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_ADVICE = {
    "SQLITE_NOTADB": "is not an SQLite database; move it away and start again, or give another "
    "path.",
    "SQLITE_CORRUPT": "is damaged; restore it from a backup, or move it away together with its "
    "-wal and -shm files and start again.",
    "SQLITE_BUSY": "is locked by another process for too long; find out which one, or use "
    "PostgreSQL for many writers.",
    "SQLITE_FULL": "cannot grow because the disk is full; free some space.",
    "SQLITE_READONLY": "cannot be written; check its permissions and those of its folder.",
    "SQLITE_CANTOPEN": "cannot be opened; check that the folder exists and can be written.",
    "SQLITE_IOERR": "cannot be read or written; check the disk.",
}


def empty_log(connection: sqlite3.Connection) -> None:
    """Move the write-ahead log into the file and empty it: deleted text must not outlive there.

    A reader in the middle of a statement is waited for as long as for a lock.
    """
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the write lock for a block: all of it is kept, or nothing."""
    # A transaction that has read cannot wait for the lock once another process wrote: it fails.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some errors, such as a full disk, SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _create_private(path: Path) -> None:
    # Conversations are for the owner's eyes; SQLite gives its -wal and -shm the same mode. A file
    # that exists is not opened here: to close it would drop the locks that SQLite holds on it for
    # this process, and another one, ending, would clear the log away under our hands. A link is
    # followed, as SQLite does: the file at its end may still be missing.
    with suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _check_owner(connection: sqlite3.Connection, path: Path) -> None:
    # One statement, hence one snapshot: another process may be creating the tables right now.
    owner, tables = connection.execute(
        "SELECT application_id, (SELECT count(*) FROM sqlite_master) FROM pragma_application_id"
    ).fetchone()
    if owner != APPLICATION_ID and (owner or tables):
        raise StoreError(f"{path} belongs to another program; give another path.")


def _schema_number(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring a database to the newest schema."""
    if not pending(_schema_number(connection), migrations):
        return
    with transaction(connection):
        # Read again: another process may have migrated while we waited for the lock.
        for step in pending(_schema_number(connection), migrations):
            for statement in step.sqlite:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {step.number}")
        # Set last, in the same transaction: a file is ours only once it has our tables.
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
