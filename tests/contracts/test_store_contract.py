"""What every session store promises, asked of each one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from stored_values import make_entry, make_record

from promptguard.conversation import Role
from promptguard.decisions import Decision, DecisionKind
from promptguard.errors import DataError, InputError, SessionNotFound, StoreError, VersionConflict
from promptguard.protocols import SessionKey, SessionLabel, SessionQuery, SessionStore
from promptguard.queries import JudgedQuery, JudgedTurn
from promptguard.state import (
    Action,
    Mode,
    ReplyKind,
    ReplyRecord,
    SessionState,
    TranscriptEntry,
    TurnRecord,
)
from promptguard.stores import STORES, open_store
from promptguard.stores.memory import MemoryStore
from promptguard.verdict import Verdict

KEY = SessionKey(session_id="s1")


def state_of(session_id: str = "s1", version: int = 1, **values: Any) -> SessionState:
    return SessionState(session_id=session_id, version=version, **values)


def entry_of(position: int, content: str | None = "hello", **values: Any) -> TranscriptEntry:
    fields = {"turn": position, "content_hash": "h", "timestamp": 10.0}
    return make_entry(content, position=position, **{**fields, **values})


def turn_of(turn: int, timestamp: float) -> TurnRecord:
    reply = ReplyRecord(kind=ReplyKind.COMPLIED, excerpt="answer", timestamp=timestamp + 1)
    return make_record(turn=turn, excerpt=f"said {turn}", timestamp=timestamp, reply=reply)


@pytest.fixture(params={opener: name for name, opener in STORES}.values())
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], SessionStore]:
    """Open a store of each registered kind; called again, the same place once more."""
    urls = {
        "memory": lambda: "memory:",
        "sqlite": lambda: f"sqlite:{tmp_path}/sessions.db",
        "postgresql": lambda: request.getfixturevalue("postgres_url"),
    }
    url = urls[request.param]()
    return lambda: open_store(url)


@pytest.fixture
async def store(make_store: Callable[[], SessionStore]) -> AsyncIterator[SessionStore]:
    opened = make_store()
    yield opened
    await opened.close()


async def test_a_saved_session_is_loaded_as_it_was(store: SessionStore) -> None:
    """Everything in the state comes back, and nothing was there before."""
    saved = state_of(mode=Mode.SUSPECT, updated=5.5, accumulated_risk=0.4, recent=(turn_of(1, 1),))
    assert await store.load(KEY) is None
    await store.save(saved, expected_version=0)
    assert await store.load(KEY) == saved


async def test_a_save_on_an_old_version_is_refused_and_leaves_no_trace(
    store: SessionStore,
) -> None:
    """The second of two writers conflicts; neither its state nor its entries are kept."""
    await store.save(state_of(), expected_version=0)
    await store.save(state_of(version=2, updated=2.0), expected_version=1)
    with pytest.raises(VersionConflict, match="load it again"):
        await store.save(
            state_of(version=2, updated=9.0), expected_version=1, entries=[entry_of(0)]
        )
    loaded = await store.load(KEY)
    assert loaded is not None
    assert loaded.updated == 2.0
    assert await store.transcript(KEY) == ()


async def test_a_new_session_conflicts_with_an_existing_one(store: SessionStore) -> None:
    """Expecting no session where there is one is a conflict, and the other way round."""
    await store.save(state_of(), expected_version=0)
    with pytest.raises(VersionConflict):
        await store.save(state_of(), expected_version=0)
    with pytest.raises(VersionConflict):
        await store.save(state_of("absent", version=4), expected_version=3)


async def test_a_state_must_follow_the_version_it_replaces(store: SessionStore) -> None:
    """A wrongly numbered state is refused before anything is written."""
    with pytest.raises(StoreError, match="number the state"):
        await store.save(state_of(version=3), expected_version=1)
    assert await store.load(KEY) is None


async def test_one_of_many_concurrent_saves_wins(store: SessionStore) -> None:
    """Of twenty saves on one version exactly one is kept."""
    await store.save(state_of(), expected_version=0)
    attempts = (
        store.save(state_of(version=2, updated=float(n)), expected_version=1) for n in range(20)
    )
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, VersionConflict) for outcome in outcomes) == 19


async def test_entries_come_back_in_order_and_are_replaced_by_position(
    store: SessionStore,
) -> None:
    """Position is the identity of an entry: saved again, it is completed, not doubled."""
    first = [entry_of(1, "b"), entry_of(0, "a", verdict='{"x": 1}')]
    await store.save(state_of(), expected_version=0, entries=first)
    second = [entry_of(1, "old"), entry_of(1, "B", role=Role.ASSISTANT), entry_of(2, None)]
    await store.save(state_of(version=2), expected_version=1, entries=second)
    assert await store.transcript(KEY) == (first[1], second[1], second[2])


async def test_any_text_survives(store: SessionStore) -> None:
    """NUL, lone surrogates, emoji and right-to-left text are stored exactly."""
    nasty = "a\x00b \ud800 \U0001f600 \u202eabc \r\n ' \" \\ %s ? $1"
    await store.save(state_of(), expected_version=0, entries=[entry_of(0, nasty, verdict=nasty)])
    label = SessionLabel(verdict="attack", author="a\x00", timestamp=1.0, note=nasty)
    await store.put_label(KEY, label)
    assert (await store.transcript(KEY))[0].content == nasty
    assert await store.labels(KEY) == (label,)


@pytest.mark.parametrize("bad", ["", "x" * 513, "a\x00b", "a\nb", "\ud800"])
async def test_a_name_no_database_can_hold_is_bad_input(store: SessionStore, bad: str) -> None:
    """Names are refused as input errors, on reading as on writing, without quoting them."""
    with pytest.raises(InputError, match="session_id must"):
        await store.save(state_of(bad), expected_version=0)
    with pytest.raises(InputError):
        await store.load(SessionKey(session_id=bad))
    with pytest.raises(InputError, match="tenant must"):
        await store.load(SessionKey(session_id="s", tenant=bad))


async def test_tenants_do_not_see_each_other(store: SessionStore) -> None:
    """The same id under two tenants is two sessions."""
    await store.save(state_of(tenant="a", updated=1.0), expected_version=0)
    await store.save(state_of(tenant="b", updated=2.0), expected_version=0, entries=[entry_of(0)])
    key = SessionKey(session_id="s1", tenant="a")
    assert await store.transcript(key) == ()
    assert await store.delete(key)
    remaining = await store.sessions(SessionQuery(tenant=None))
    assert [state.tenant for state in remaining] == ["b"]
    assert len(await store.sessions(SessionQuery(tenant="b"))) == 1
    assert await store.sessions(SessionQuery()) == ()


async def test_sessions_are_filtered_and_newest_first(store: SessionStore) -> None:
    """Mode, part of the id, limit and offset each do what they say; % and _ mean themselves."""
    for number, name in enumerate(["alpha", "beta_1", "beta%2", "Gamma", "delta"]):
        mode = Mode(number)
        await store.save(state_of(name, updated=float(number), mode=mode), expected_version=0)

    async def names(**values: Any) -> list[str]:
        return [state.session_id for state in await store.sessions(SessionQuery(**values))]

    assert await names() == ["delta", "Gamma", "beta%2", "beta_1", "alpha"]
    assert await names(min_mode=Mode.SUSPECT) == ["delta", "Gamma"]
    assert await names(contains="beta") == ["beta%2", "beta_1"]
    assert await names(contains="_") == ["beta_1"]
    assert await names(contains="%") == ["beta%2"]
    assert await names(contains="\ud800\0") == await names(search="\ud800\0") == []
    assert await names(limit=2, offset=1) == ["Gamma", "beta%2"]
    assert await names(offset=9) == []


async def test_sessions_of_the_same_age_have_one_order(store: SessionStore) -> None:
    """Ties are broken by tenant and id in code point order, so pages do not overlap."""
    for tenant in ("b", "a"):
        for name in ("é", "z", "Z", "a"):
            await store.save(state_of(name, tenant=tenant, updated=1.0), expected_version=0)
    listed = await store.sessions(SessionQuery(tenant=None))
    assert [(s.tenant, s.session_id) for s in listed] == [
        (tenant, name) for tenant in "ab" for name in ("Z", "a", "z", "é")
    ]


async def test_deleting_forgets_everything(store: SessionStore) -> None:
    """State, transcript and labels go; the name can be used anew from version 1."""
    await store.save(state_of(), expected_version=0, entries=[entry_of(0)])
    await store.put_label(KEY, SessionLabel(verdict="attack", author="a", timestamp=1.0))
    assert await store.delete(KEY) is True
    assert await store.delete(KEY) is False
    with pytest.raises(VersionConflict):
        await store.save(state_of(version=2), expected_version=1)
    await store.save(state_of(), expected_version=0)
    assert await store.transcript(KEY) == ()
    assert await store.labels(KEY) == ()


@pytest.fixture(params=["sqlite", "postgresql"])
async def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    """Return a store of two sessions with old text, of which `s1` has a state nobody can read."""
    old, other = entry_of(0, timestamp=0.0), state_of("s2", recent=(turn_of(0, 0.0),))
    path = tmp_path / "sessions.db"
    is_file = request.param == "sqlite"
    url = f"sqlite:{path}" if is_file else request.getfixturevalue("postgres_url")
    store = open_store(url)
    await store.save(state_of(updated=9.0), expected_version=0, entries=[old])
    await store.save(other, expected_version=0, entries=[old])
    connect = sqlite3.connect if is_file else psycopg.connect
    with closing(connect(path if is_file else url)) as connection:
        connection.execute("UPDATE guard_sessions SET state = '{}' WHERE session_id = 's1'")
        connection.commit()
    yield store
    await store.close()


async def test_a_damaged_session_keeps_no_old_text_of_others(damaged: SessionStore) -> None:
    """Retention goes on past a state that it cannot read, and takes its transcript along."""
    assert await damaged.redact(before=5.0) == 2
    other = await damaged.load(SessionKey(session_id="s2"))
    assert other is not None
    assert other.recent[0].excerpt == ""
    assert [entry.content for entry in await damaged.transcript(KEY)] == [None]


async def test_a_damaged_session_breaks_no_list_and_can_be_deleted(damaged: SessionStore) -> None:
    """The others are listed; the damaged one is refused by itself until it is deleted."""
    states = await damaged.sessions(SessionQuery())
    page = await damaged.page(SessionQuery())
    assert [state.session_id for state in states] == ["s2"]
    assert [row.state.session_id for row in page.rows] == ["s2"]
    with pytest.raises(DataError):
        await damaged.load(KEY)
    assert await damaged.delete(KEY) is True


async def test_labels_are_listed_oldest_first(store: SessionStore) -> None:
    """Every verdict is kept; one on an unknown session is an error."""
    with pytest.raises(SessionNotFound):
        await store.put_label(KEY, SessionLabel(verdict="attack", author="a", timestamp=1.0))
    await store.save(state_of(), expected_version=0)
    given = [SessionLabel(verdict="attack", author="a", timestamp=t, note="n") for t in (2.0, 1.0)]
    for label in given:
        await store.put_label(KEY, label)
    assert await store.labels(KEY) == (given[1], given[0])


async def test_redaction_drops_old_text_from_transcript_and_state(store: SessionStore) -> None:
    """Only text older than the limit goes; hashes, verdicts and risks stay."""
    entries = [entry_of(n, f"said {n}", timestamp=float(n), verdict="{}") for n in range(4)]
    state = state_of(recent=(turn_of(0, 0.0), turn_of(3, 3.0)), updated=4.0)
    await store.save(state, expected_version=0, entries=entries)
    await store.save(state_of("other"), expected_version=0, entries=[entry_of(0, timestamp=99)])
    assert await store.redact(before=2.0) == 2
    assert await store.redact(before=2.0) == 0
    kept = await store.transcript(KEY)
    assert [entry.content for entry in kept] == [None, None, "said 2", "said 3"]
    assert kept[0] == replace(entries[0], content=None)
    loaded = await store.load(KEY)
    assert loaded is not None
    assert [turn.excerpt for turn in loaded.recent] == ["", "said 3"]
    assert loaded.recent[0].reply is not None
    assert loaded.recent[0].reply.excerpt == ""
    assert loaded.version == 2


async def test_a_turn_under_way_cannot_bring_redacted_text_back(store: SessionStore) -> None:
    """Redaction raises the version, so the turn conflicts and starts from the redacted state."""
    state = state_of(recent=(turn_of(0, 0.0),))
    await store.save(state, expected_version=0, entries=[entry_of(0, timestamp=0.0)])
    await store.redact(before=5.0)
    with pytest.raises(VersionConflict):
        await store.save(replace(state, version=2), expected_version=1)


async def test_saves_are_announced(store: SessionStore) -> None:
    """Whoever listens gets each session's key after it was saved."""
    changes = store.changes()
    other = store.changes()
    await store.save(state_of(), expected_version=0)
    await store.save(state_of("s2"), expected_version=0)
    for listener in (changes, other):
        heard = [await asyncio.wait_for(anext(listener), 10) for _ in range(2)]
        assert [key.session_id for key in heard] == ["s1", "s2"]


async def test_closing_ends_listeners_and_refuses_further_use(store: SessionStore) -> None:
    """A closed store says so; closing again is harmless."""
    changes = store.changes()
    await store.save(state_of(), expected_version=0)
    await store.close()
    assert [key async for key in changes] == [KEY]
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.load(KEY)
    with pytest.raises(StoreError, match="closed"):
        store.changes()


async def test_closing_while_used_loses_no_acknowledged_save(
    make_store: Callable[[], SessionStore], request: pytest.FixtureRequest
) -> None:
    """Every save under way when the store closes either succeeds or says that it did not."""
    store = make_store()
    await store.save(state_of("first"), expected_version=0)
    saves = [
        asyncio.create_task(store.save(state_of(f"n{n}"), expected_version=0)) for n in range(30)
    ]
    await asyncio.wait(saves, return_when=asyncio.FIRST_COMPLETED)
    await store.close()
    outcomes = await asyncio.gather(*saves, return_exceptions=True)
    assert all(outcome is None or isinstance(outcome, StoreError) for outcome in outcomes)
    if "memory" in request.node.name:
        return
    again = make_store()
    found = {state.session_id for state in await again.sessions(SessionQuery())}
    await again.close()
    assert found >= {f"n{n}" for n, outcome in enumerate(outcomes) if outcome is None}


def test_a_store_can_be_used_from_one_event_loop_after_another(
    make_store: Callable[[], SessionStore],
) -> None:
    """Synchronous callers run each call in a loop of its own."""
    store = make_store()
    asyncio.run(store.save(state_of(), expected_version=0))
    assert asyncio.run(store.load(KEY)) == state_of()
    asyncio.run(store.close())


async def test_the_tail_is_the_end_of_the_transcript(make_store: Callable[[], SessionStore]):
    """The last messages come in their order, and all of them where fewer are stored."""
    store = make_store()
    entries = tuple(entry_of(at, f"said {at}") for at in range(5))
    await store.save(state_of(), expected_version=0, entries=entries)
    assert await store.tail(KEY, 2) == entries[-2:]
    assert await store.tail(KEY, 9) == entries
    assert await store.tail(KEY, 0) == ()
    assert await store.tail(SessionKey(session_id="other"), 2) == ()
    await store.close()


async def test_a_store_that_takes_writes_says_so(make_store: Callable[[], SessionStore]):
    """The check writes, changes nothing that can be read, and fails once the store is closed."""
    store = make_store()
    await store.save(state_of(), expected_version=0)
    before = await store.load(KEY)
    await store.check_writable()
    assert await store.load(KEY) == before
    await store.close()
    with pytest.raises(StoreError):
        await store.check_writable()


async def test_decisions_are_kept_in_order_and_numbered(store: SessionStore) -> None:
    """What operators decided comes back as it was, the oldest first, with rising numbers."""
    assert await store.decisions() == ()
    for number, kind in enumerate(DecisionKind):
        await store.decide(
            Decision(kind=kind, author="boss", timestamp=float(number), body="{}", tenant="t")
        )
    found = await store.decisions()
    assert [each.kind for each in found] == list(DecisionKind)
    assert [each.timestamp for each in found] == [0.0, 1.0, 2.0]
    assert [each.number for each in found] == sorted({each.number for each in found})
    assert {(each.author, each.tenant, each.body) for each in found} == {("boss", "t", "{}")}


async def test_decisions_outlive_the_store_that_took_them(
    make_store: Callable[[], SessionStore],
) -> None:
    """A restart finds them; the store in memory keeps nothing, and says nothing else."""
    first = make_store()
    kept = 0 if isinstance(first, MemoryStore) else 1
    await first.decide(Decision(kind=DecisionKind.APPLY, author="boss", timestamp=1.0, body="{}"))
    await first.close()
    second = make_store()
    assert len(await second.decisions()) == kept
    await second.close()


async def test_judged_turns_come_batch_by_batch(store: SessionStore) -> None:
    """Every judged turn of the tenant once, by session and turn, demo only where asked for."""
    judged = Verdict(turn=1, action=Action.BLOCK, turn_risk=0.9).to_json()
    for name in ("b", "a", "demo:x", "c"):
        entries = [entry_of(n, turn=n + 1, verdict=judged, timestamp=5.0 + n) for n in range(3)]
        await store.save(state_of(name), expected_version=0, entries=entries)
    await store.save(
        state_of("z", tenant="other"), expected_version=0, entries=[entry_of(0, verdict=judged)]
    )
    await store.put_label(
        SessionKey(session_id="b"),
        SessionLabel(verdict="attack", author="x", timestamp=1.0, turn=2),
    )
    found: list[JudgedTurn] = []
    while batch := await store.judged(
        JudgedQuery(
            after_session=found[-1].session_id if found else "",
            after_turn=found[-1].turn if found else 0,
            limit=4,
        )
    ):
        found += batch
    assert [(t.session_id, t.turn) for t in found] == [(n, t) for n in "abc" for t in (1, 2, 3)]
    assert [t.label for t in found] == ["", "", "", "", "attack", "", "", "", ""]
    assert {t.timestamp for t in found} == {5.0, 6.0, 7.0}
    assert Verdict.from_json(found[0].verdict).action is found[0].action is Action.BLOCK
    assert len(await store.judged(JudgedQuery(with_demo=True))) == 12
