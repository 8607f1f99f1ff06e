"""What the SQLite store promises beyond the contract: many processes, crashes, broken files."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from session_writer import (
    KEY,
    add_turn,
    check_story,
    finish,
    kill,
    read_acknowledgements,
    start_writer,
)
from stored_values import make_entry

from promptguard.errors import StoreError
from promptguard.protocols import SessionKey
from promptguard.state import SessionState
from promptguard.stores import open_store
from promptguard.stores.migrations import MIGRATIONS, Migration
from promptguard.stores.sqlite import SqliteStore
from promptguard.stores.sqlite_connection import SqliteFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def read(path: Path) -> bytes:
    return path.read_bytes()


async def test_two_processes_on_one_session_lose_and_double_nothing(path: Path) -> None:
    """Both writers' turns are all there, once, each writer's in its order."""
    writers = [start_writer(f"sqlite:{path}", name, 40) for name in ("a", "b")]
    acknowledged = {name: finish(w) for name, w in zip(("a", "b"), writers, strict=True)}
    assert acknowledged == {"a": 40, "b": 40}
    store = open_store(f"sqlite:{path}")
    await check_story(store, acknowledged)
    await store.close()


async def test_a_process_that_ends_takes_nothing_from_one_that_goes_on(path: Path) -> None:
    """The last to close a file clears its log away; nobody may think so while others write."""
    url = f"sqlite:{path}"
    here = open_store(url)
    await add_turn(here, "here 0")
    assert finish(start_writer(url, "there", 1)) == 1
    await add_turn(here, "here 1")
    assert finish(start_writer(url, "later", 1)) == 1
    await check_story(here, {"here": 2, "there": 1, "later": 1})
    await here.close()
    again = open_store(url)
    await check_story(again, {"here": 2, "there": 1, "later": 1})
    await again.close()


async def test_a_check_of_the_file_leaves_it_to_nobody_else(path: Path) -> None:
    """A process that ends after the check must not clear away the log of one that goes on."""
    url = f"sqlite:{path}"
    here = open_store(url)
    await add_turn(here, "here 0")
    await here.check_writable()
    assert finish(start_writer(url, "there", 1)) == 1
    await add_turn(here, "here 1")
    assert finish(start_writer(url, "later", 1)) == 1
    await check_story(here, {"here": 2, "there": 1, "later": 1})
    await here.close()


@pytest.mark.parametrize("size", [0, 4096])
async def test_a_file_that_is_overwritten_while_it_is_open_is_noticed(
    path: Path, size: int
) -> None:
    """The pages that SQLite holds do not hide that the file begins otherwise or is empty."""
    store = open_store(f"sqlite:{path}")
    await add_turn(store, "a 0")
    await store.check_writable()
    with path.open("r+b") as file:
        file.write(bytes(16))
        file.truncate(size)
    with pytest.raises(StoreError, match=r"(damaged|not an SQLite database)"):
        await store.check_writable()
    await store.close()


@pytest.mark.parametrize("synchronous", ["full", "normal"])
async def test_a_killed_process_loses_no_acknowledged_save(path: Path, synchronous: str) -> None:
    """After kill -9 in the middle of a stream of saves, all that was acknowledged is there."""
    url = f"sqlite:{path}?synchronous={synchronous}"
    writer = start_writer(url, "a", 100_000)
    acknowledged = read_acknowledgements(writer, 30)
    acknowledged += kill(writer)
    store = open_store(url)
    await check_story(store, {"a": acknowledged}, unsure=1)
    await add_turn(store, "after 0")
    await store.close()


async def test_another_process_is_heard(path: Path) -> None:
    """A save through another connection reaches the listener by polling."""
    here = SqliteStore(SqliteFile(path=path), poll_s=0.01)
    there = SqliteStore(SqliteFile(path=path))
    heard = asyncio.ensure_future(anext(here.changes()))
    for number in range(500):
        await add_turn(there, f"x {number}")
        await asyncio.wait({heard}, timeout=0.02)
        if heard.done():
            break
    assert heard.result() == KEY
    await here.close()
    await there.close()


async def test_own_saves_are_heard_once(path: Path) -> None:
    """Polling does not repeat what this store announced itself."""
    store = SqliteStore(SqliteFile(path=path), poll_s=0.001)
    other = SqliteStore(SqliteFile(path=path))
    changes = store.changes()
    await add_turn(store, "own 0")
    heard = [await asyncio.wait_for(anext(changes), 10)]
    for number in range(500):
        state = SessionState(session_id=f"other{number}", version=1)
        await other.save(state, expected_version=0)
        following = asyncio.ensure_future(anext(changes))
        await asyncio.wait({following}, timeout=0.05)
        if following.done():
            heard.append(following.result())
            break
        following.cancel()
    assert heard.count(KEY) == 1
    assert heard[-1].session_id.startswith("other")
    await store.close()
    await other.close()


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b"this is not a database, whatever its name says" * 100, "not an SQLite database"),
        (b"SQLite format 3\x00" + b"\xff" * 8000, "(not an SQLite database|damaged|cannot be)"),
    ],
)
async def test_a_broken_file_is_explained(path: Path, content: bytes, advice: str) -> None:
    """The error names the file and says what to do; the file is left as it is."""
    write(path, content)
    store = open_store(f"sqlite:{path}")
    with pytest.raises(StoreError, match=advice) as caught:
        await store.load(KEY)
    assert "sessions.db" in str(caught.value)
    assert read(path) == content
    await store.close()


async def test_damage_in_the_middle_is_explained(path: Path) -> None:
    """Pages overwritten under a closed store are an error with advice, not wrong data."""
    store = open_store(f"sqlite:{path}")
    for number in range(20):
        await add_turn(store, f"a {number}")
    await store.close()
    raw = read(path)
    write(path, raw[:4096] + b"\xab" * (len(raw) - 4096))
    again = open_store(f"sqlite:{path}")
    with pytest.raises(StoreError, match="move it away"):
        await again.load(KEY)
    await again.close()


async def test_a_newer_schema_is_refused(path: Path) -> None:
    """A file of a later version is not touched."""
    store = open_store(f"sqlite:{path}")
    await add_turn(store, "a 0")
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    again = open_store(f"sqlite:{path}")
    with pytest.raises(StoreError, match=r"schema 99.*upgrade promptguard"):
        await again.load(KEY)
    await again.close()


async def test_another_programs_database_is_refused(path: Path) -> None:
    """We do not put our tables into a database that is not ours."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    store = open_store(f"sqlite:{path}")
    with pytest.raises(StoreError, match="another program"):
        await store.load(KEY)
    await store.close()


async def test_a_missing_folder_is_explained(tmp_path: Path) -> None:
    """The error says that the folder must exist."""
    store = open_store(f"sqlite:{tmp_path}/absent/sessions.db")
    with pytest.raises(StoreError, match="folder"):
        await store.load(KEY)
    await store.close()


@pytest.mark.parametrize(
    ("must_exist", "advice"), [(False, "choose a folder"), (True, "check the path")]
)
async def test_a_path_that_cannot_be_looked_at_is_explained(
    tmp_path: Path, must_exist: bool, advice: str
) -> None:
    """Such as a name that is too long, or a folder that may not be entered."""
    store = open_store(f"sqlite:{tmp_path}/{'a' * 300}", must_exist=must_exist)
    with pytest.raises(StoreError, match=advice):
        await store.load(SessionKey(session_id="a"))
    await store.close()


async def test_a_lock_held_too_long_is_explained(path: Path) -> None:
    """A writer that never ends gives an error with advice after the timeout."""
    store = SqliteStore(SqliteFile(path=path, busy_timeout_s=0.05))
    await add_turn(store, "a 0")
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked by another process"):
        await add_turn(store, "a 1")
    blocker.execute("ROLLBACK")
    blocker.close()
    await add_turn(store, "a 1")
    await check_story(store, {"a": 2})
    await store.close()


async def test_only_the_owner_may_read_the_file(path: Path) -> None:
    """Conversations are private: the file and its companions have mode 600."""
    store = open_store(f"sqlite:{path}")
    await add_turn(store, "a 0")
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    await store.close()


async def test_a_file_behind_a_link_is_private_too(tmp_path: Path) -> None:
    """A link to a file that is not there yet leads to one that others cannot read."""
    folder = tmp_path / "volume"
    folder.mkdir()
    link = tmp_path / "guard.db"
    link.symlink_to(folder / "sessions.db")
    store = open_store(f"sqlite:{link}")
    await add_turn(store, "a 0")
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    await store.close()


async def test_forgotten_text_is_gone_from_the_file(path: Path) -> None:
    """After deletion and a clean close the words are nowhere in the folder."""
    store = open_store(f"sqlite:{path}")
    await add_turn(store, "unmistakable-words 0")
    await store.delete(KEY)
    await store.close()
    assert all(b"unmistakable" not in file.read_bytes() for file in path.parent.iterdir())


def test_concurrent_opening_migrates_once(path: Path) -> None:
    """Ten openings at once all succeed and each step was applied exactly once."""
    count = Migration(
        number=len(MIGRATIONS) + 1,
        purpose="count applications",
        sqlite=("CREATE TABLE applied (x)", "INSERT INTO applied VALUES (1)"),
        postgres=(),
    )
    file = SqliteFile(path=path)

    def open_and_count(_: int) -> int:
        connection = file.connect((*MIGRATIONS, count))
        try:
            return int(connection.execute("SELECT count(*) FROM applied").fetchone()[0])
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as executor:
        assert set(executor.map(open_and_count, range(10))) == {1}


async def test_an_older_file_is_brought_up_to_date(path: Path) -> None:
    """A later step is applied to a file with data, which stays."""
    store = open_store(f"sqlite:{path}")
    await add_turn(store, "a 0")
    await store.close()
    step = Migration(
        number=len(MIGRATIONS) + 1, purpose="more", sqlite=("CREATE TABLE more (x)",), postgres=()
    )
    connection = SqliteFile(path=path).connect((*MIGRATIONS, step))
    assert connection.execute("SELECT count(*) FROM guard_sessions").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM more").fetchone() == (0,)
    connection.close()


def test_a_failed_migration_leaves_the_file_as_it_was(path: Path) -> None:
    """A step that fails half way is undone with all its statements."""
    step = Migration(
        number=len(MIGRATIONS) + 1,
        purpose="bad",
        sqlite=("CREATE TABLE half (x)", "SELEKT"),
        postgres=(),
    )
    SqliteFile(path=path).connect().close()
    with pytest.raises(StoreError):
        SqliteFile(path=path).connect((*MIGRATIONS, step))
    connection = SqliteFile(path=path).connect()
    tables = connection.execute("SELECT name FROM sqlite_master WHERE name = 'half'").fetchall()
    connection.close()
    assert tables == []


@pytest.mark.parametrize(("setting", "level"), [("", 1), ("?synchronous=full", 2)])
async def test_how_carefully_saves_are_written_is_a_choice(
    path: Path, setting: str, level: int
) -> None:
    """NORMAL is the default and FULL a choice, both with a write-ahead log."""
    store = SqliteStore.from_url(f"sqlite:{path}{setting}")
    mode = await store._writer.run(lambda c: c.execute("PRAGMA journal_mode").fetchone()[0])
    found = await store._writer.run(lambda c: c.execute("PRAGMA synchronous").fetchone()[0])
    assert (mode, found) == ("wal", level)
    await store.close()


async def test_many_sessions_are_redacted_in_steps(path: Path) -> None:
    """Redaction goes on until nothing old is left, however many sessions there are."""
    store = SqliteStore(SqliteFile(path=path))
    entry = make_entry(timestamp=1.0)
    for number in range(205):
        state = SessionState(session_id=f"s{number}", version=1)
        await store.save(state, expected_version=0, entries=[entry])
    assert await store.redact(before=100.0) == 205
    assert await store.redact(before=100.0) == 0
    await store.close()


async def test_forgotten_text_is_in_no_file(path: Path) -> None:
    """Neither deleting nor redacting leaves the words in the database or its log."""
    store = open_store(f"sqlite:{path}")
    await add_turn(store, "unforgettable 0")
    assert any(b"unforgettable" in each.read_bytes() for each in path.parent.iterdir())
    await store.redact(before=5.0)
    assert not any(b"unforgettable" in each.read_bytes() for each in path.parent.iterdir())
    await add_turn(store, "regrettable 1")
    await store.delete(KEY)
    assert not any(b"regrettable" in each.read_bytes() for each in path.parent.iterdir())
    await store.close()


async def test_a_store_that_must_exist_is_not_created(path: Path) -> None:
    """Reading in the wrong folder is an error that names the path, and leaves nothing behind."""
    store = open_store(f"sqlite:{path}", must_exist=True)
    with pytest.raises(StoreError, match=str(path)):
        await store.load(KEY)
    await store.close()
    assert list(path.parent.iterdir()) == []


async def test_a_file_removed_while_it_is_open_is_noticed(tmp_path: Path):
    """SQLite would go on in the removed file, and every acknowledged turn would be lost."""
    path = tmp_path / "sessions.db"
    store = open_store(f"sqlite:{path}")
    await store.save(SessionState(session_id="s", version=1), expected_version=0)
    path.unlink()
    with pytest.raises(StoreError, match="removed or replaced"):
        await store.save(SessionState(session_id="s", version=2), expected_version=1)
    with pytest.raises(StoreError, match="removed or replaced"):
        await store.check_writable()
    await store.close()


async def test_a_deleted_text_is_in_no_file_while_the_store_is_open(path: Path) -> None:
    """Neither in the database nor in its write-ahead log, from which it could be read."""
    store = open_store(f"sqlite:{path}")
    secret = b"swordfish harbour at nine"
    await add_turn(store, secret.decode())

    def holds_secret() -> bool:
        return any(secret in file.read_bytes() for file in path.parent.iterdir())

    assert holds_secret()
    assert await store.delete(KEY)
    assert not holds_secret()
    await store.close()
