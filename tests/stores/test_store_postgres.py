"""What the PostgreSQL store promises beyond the contract: a fleet, restarts, lost answers."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from cutting_proxy import cutting_proxy
from session_writer import (
    KEY,
    add_turn,
    check_story,
    finish,
    kill,
    read_acknowledgements,
    start_writer,
)

from promptguard.errors import StoreError, VersionConflict
from promptguard.protocols import SessionLabel
from promptguard.state import SessionState
from promptguard.stores.migrations import MIGRATIONS, Migration
from promptguard.stores.postgres import PostgresStore
from promptguard.stores.postgres_connection import PostgresLink
from promptguard.testing import ManualClock


def restart(server: Any) -> None:
    server.stop()
    server.start()


async def count_rows(url: str, table: str) -> int:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        cursor = await connection.execute(f"SELECT count(*) FROM {table}")
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def test_a_fleet_loses_and_doubles_nothing_while_one_is_killed(postgres_url: str) -> None:
    """Three processes share a session, one dies by kill -9: every acknowledged turn is there."""
    victim = start_writer(postgres_url, "victim", 100_000)
    others = {name: start_writer(postgres_url, name, 25) for name in ("a", "b")}
    acknowledged = {"victim": read_acknowledgements(victim, 10)}
    acknowledged["victim"] += kill(victim)
    acknowledged |= {name: finish(writer) for name, writer in others.items()}
    assert acknowledged["a"] == acknowledged["b"] == 25
    store = PostgresStore(postgres_url)
    await check_story(store, acknowledged, unsure=1)
    await store.close()


async def test_writers_live_through_a_restart(postgres_server: Any, postgres_url: str) -> None:
    """The database restarts under two busy stores; nothing is lost or applied twice."""
    stores = {name: PostgresStore(postgres_url) for name in ("a", "b")}
    written = dict.fromkeys(stores, 0)
    is_restarted = asyncio.Event()

    async def write(name: str) -> None:
        last = None
        while last is None or written[name] < last:
            await add_turn(stores[name], f"{name} {written[name]}")
            written[name] += 1
            if last is None and is_restarted.is_set():
                last = written[name] + 10

    writers = [asyncio.create_task(write(name)) for name in stores]
    await asyncio.to_thread(restart, postgres_server)
    is_restarted.set()
    await asyncio.gather(*writers)
    await check_story(stores["a"], written)
    for store in stores.values():
        await store.close()


@pytest.mark.parametrize("earlier_turns", [0, 3])
async def test_a_save_whose_answer_is_lost_is_not_applied_twice(
    postgres_url: str, earlier_turns: int
) -> None:
    """The save is repeated, finds itself already done, and succeeds; first and later versions."""
    async with cutting_proxy(postgres_url) as proxy:
        store = PostgresStore(proxy.url)
        for number in range(earlier_turns):
            await add_turn(store, f"a {number}")
        proxy.cuts = 1
        await add_turn(store, f"a {earlier_turns}")
        assert proxy.after_cut.is_set()
        await check_story(store, {"a": earlier_turns + 1})
        await store.close()


async def test_a_lost_answer_is_recognised_although_others_saved_since(postgres_url: str) -> None:
    """Between the lost answer and the repetition another guard saves on top."""
    other = PostgresStore(postgres_url)
    async with cutting_proxy(postgres_url) as proxy:

        async def interfere(_: float) -> None:
            for number in range(3):
                await add_turn(other, f"b {number}")

        store = PostgresStore(proxy.url, sleep=interfere)
        await add_turn(store, "a 0")
        proxy.cuts = 1
        await add_turn(store, "a 1")
        await check_story(other, {"a": 2, "b": 3})
        await store.close()
    await other.close()


async def test_a_lost_answer_to_a_conflicting_save_stays_a_conflict(postgres_url: str) -> None:
    """Repeating does not turn somebody else's version into ours."""
    other = PostgresStore(postgres_url)
    await add_turn(other, "b 0")
    async with cutting_proxy(postgres_url) as proxy:
        store = PostgresStore(proxy.url)
        proxy.cuts = 1
        with pytest.raises(VersionConflict):
            await store.save(SessionState(session_id="shared", version=1), expected_version=0)
        await store.close()
    await check_story(other, {"b": 1})
    await other.close()


async def test_answers_lost_again_and_again_are_an_error(postgres_url: str) -> None:
    """Patience is bounded, and the waits grow."""
    clock = ManualClock()
    async with cutting_proxy(postgres_url) as proxy:
        store = PostgresStore(proxy.url, sleep=clock.sleep)
        await add_turn(store, "a 0")
        proxy.cuts = 1000
        with pytest.raises(StoreError, match="cannot be reached"):
            await store.save(SessionState(session_id="new", version=1), expected_version=0)
        await store.close()
    assert len(clock.slept) == 6
    assert clock.slept[-1] > clock.slept[0]


async def test_another_guard_is_heard(postgres_url: str) -> None:
    """A save by one store reaches a listener of another."""
    here, there = PostgresStore(postgres_url), PostgresStore(postgres_url)
    heard = asyncio.ensure_future(anext(here.changes()))
    for number in range(500):
        await add_turn(there, f"x {number}")
        await asyncio.wait({heard}, timeout=0.02)
        if heard.done():
            break
    assert heard.result() == KEY
    await here.close()
    await there.close()


async def test_listening_goes_on_after_a_restart(postgres_server: Any, postgres_url: str) -> None:
    """The listener connects again and catches up with what it missed."""
    here, there = PostgresStore(postgres_url), PostgresStore(postgres_url)
    changes = here.changes()
    await add_turn(here, "x 0")
    assert await asyncio.wait_for(anext(changes), 10) == KEY
    await asyncio.to_thread(restart, postgres_server)
    heard = asyncio.ensure_future(anext(changes))
    for number in range(500):
        await add_turn(there, f"y {number}")
        await asyncio.wait({heard}, timeout=0.02)
        if heard.done():
            break
    assert heard.result() == KEY
    await here.close()
    await there.close()


async def test_concurrent_opening_migrates_once(postgres_url: str) -> None:
    """Ten stores opened at once all work, and each step was applied exactly once."""
    step = Migration(
        number=len(MIGRATIONS) + 1,
        purpose="count applications",
        sqlite=(),
        postgres=(
            "CREATE TABLE IF NOT EXISTS applied (x INTEGER)",
            "INSERT INTO applied VALUES (1)",
        ),
    )
    links = [PostgresLink(postgres_url, migrations=(*MIGRATIONS, step)) for _ in range(10)]

    async def use(link: PostgresLink) -> None:
        await link.run(lambda connection: connection.execute("SELECT 1"))
        link.close()

    await asyncio.gather(*(use(link) for link in links))
    assert await count_rows(postgres_url, "applied") == 1
    assert await count_rows(postgres_url, "guard_schema") == 1


async def test_a_newer_schema_is_refused(postgres_url: str) -> None:
    """A database of a later version is not touched, and asking does not take long."""
    clock = ManualClock()
    store = PostgresStore(postgres_url, sleep=clock.sleep)
    await add_turn(store, "a 0")
    await store.close()
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        await connection.execute("UPDATE guard_schema SET number = 99")
    again = PostgresStore(postgres_url, sleep=clock.sleep)
    with pytest.raises(StoreError, match="upgrade promptguard"):
        await again.load(KEY)
    assert clock.slept == []
    await again.close()


async def test_an_absent_server_is_explained_without_the_password() -> None:
    """After bounded patience the error says what to check."""
    clock = ManualClock()
    store = PostgresStore("postgresql://me:hunter2@127.0.0.1:1/x", sleep=clock.sleep)
    with pytest.raises(StoreError, match="check that it runs") as caught:
        await store.load(KEY)
    assert "hunter2" not in str(caught.value)
    assert len(clock.slept) == 6
    await store.close()


@pytest.mark.parametrize(
    "reason",
    [
        'invalid percent-encoded token: "50%secret"',
        "failed to resolve host 'secret@127.0.0.1': [Errno -2] Name or service not known",
    ],
)
async def test_a_password_that_an_address_cannot_hold_is_not_shown(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sign with a meaning of its own moves part of the password to where the host stands."""

    async def refuse(*_args: object, **_options: object) -> None:
        raise psycopg.OperationalError(reason)

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", refuse)
    store = PostgresStore("postgresql://me:x@127.0.0.1:1/x", sleep=ManualClock().sleep)
    with pytest.raises(StoreError, match="store URL") as caught:
        await store.load(KEY)
    assert "secret" not in str(caught.value)


async def test_a_listener_waits_on_however_long_the_database_is_away() -> None:
    """The wait between two attempts has a bound after any number of them."""
    clock = ManualClock()
    link = PostgresLink("postgresql://127.0.0.1:1/x", sleep=clock.sleep)
    await link.wait(10_000)
    assert 0 < clock.slept[0] <= 5


async def test_a_refused_statement_is_not_repeated_nor_quoted(postgres_url: str) -> None:
    """Errors about data are final, and their message holds no data."""
    clock = ManualClock()
    store = PostgresStore(postgres_url, sleep=clock.sleep)
    await add_turn(store, "a 0")
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        await connection.execute(
            "ALTER TABLE guard_entries ADD CHECK (content_hash <> '') NOT VALID"
        )
    with pytest.raises(StoreError, match="refused") as caught:
        await add_turn(store, "words-of-the-user 1")
    assert "words-of-the-user" not in str(caught.value)
    assert clock.slept == []
    await store.close()


async def test_a_database_that_hangs_is_given_up(postgres_url: str) -> None:
    """A lock that never goes away ends in an error after the timeout."""
    store, patient = PostgresStore(postgres_url, timeout_s=0.3), PostgresStore(postgres_url)
    await add_turn(patient, "a 0")
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        await connection.execute("LOCK TABLE guard_sessions IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreError, match=r"within 0\.3 s"):
            await add_turn(store, "a 1")
    await add_turn(patient, "a 1")
    await check_story(patient, {"a": 2})
    await store.close()
    await patient.close()


async def test_a_label_and_a_deletion_survive_a_restart(
    postgres_server: Any, postgres_url: str
) -> None:
    """Connections that died in the pool are replaced without the caller noticing."""
    store = PostgresStore(postgres_url)
    await add_turn(store, "a 0")
    await asyncio.to_thread(restart, postgres_server)
    await store.put_label(KEY, SessionLabel(verdict="attack", author="a", timestamp=1.0))
    assert len(await store.labels(KEY)) == 1
    assert await store.delete(KEY) is True
    await store.close()


async def test_more_callers_than_connections_take_turns(postgres_url: str) -> None:
    """The pool never opens more connections than it may."""
    store = PostgresStore(postgres_url, pool_size=2)
    await asyncio.gather(*(add_turn(store, f"w{n} 0") for n in range(12)))
    await check_story(store, {f"w{n}": 1 for n in range(12)})
    await store.close()


async def test_a_database_without_our_tables_is_not_given_them(postgres_url: str) -> None:
    """With `must_exist` the error names the database, and nothing was created."""
    store = PostgresStore(postgres_url, must_exist=True)
    with pytest.raises(StoreError, match="holds no sessions"):
        await store.load(KEY)
    await store.close()
    fresh = PostgresStore(postgres_url)
    assert await fresh.load(KEY) is None
    await fresh.close()
    again = PostgresStore(postgres_url, must_exist=True)
    assert await again.load(KEY) is None
    await again.close()
