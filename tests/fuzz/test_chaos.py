"""A short form of the chaos run; the long one is `make chaos`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stored_values import make_entry

from fuzz.chaos import Fault, Place, Story, Violated, check, run
from promptguard.protocols import SessionKey
from promptguard.state import SessionState, TranscriptEntry
from promptguard.stores import open_store

PASSES = 4


def through_all_faults(place: Place) -> Story:
    """Run every fault, again where none met a turn: when it strikes is not in our hands."""
    story = Story()
    for seed in range(PASSES):
        for fault in Fault:
            assert run(place, fault, story, seed=seed * len(Fault) + len(story.tried), turns=16) > 0
            asyncio.run(check(place, story))
        if sum(story.failed.values()):
            break
    return story


def test_sqlite_keeps_its_promises_through_every_fault(tmp_path: Path) -> None:
    """Killed, restarted, without disk and with a jumping clock it loses and doubles nothing."""
    story = through_all_faults(Place(url=f"sqlite:{tmp_path}/chaos.db"))
    assert sum(story.failed.values()) > 0


def test_postgresql_keeps_its_promises_through_every_fault(
    postgres_server: Any, postgres_url: str
) -> None:
    """Likewise with a server that restarts and says that its disk is full."""
    story = through_all_faults(Place(url=postgres_url, server=postgres_server))
    assert sum(story.failed.values()) > 0


def stored(*turns: int) -> list[TranscriptEntry]:
    return [
        make_entry(f"question {number}", position=at, turn=at + 1)
        for at, number in enumerate(turns)
    ]


@pytest.mark.parametrize(
    ("turns", "messages", "broken"),
    [
        ((0,), 1, "acknowledged turns are stored"),
        ((1, 0), 2, "turns keep their order"),
        ((0, 0, 1), 3, "no turn is doubled"),
        ((0, 1), 3, "the state counts the messages"),
    ],
)
async def test_the_checker_sees_what_is_broken(
    tmp_path: Path, turns: tuple[int, ...], messages: int, broken: str
) -> None:
    """Two acknowledged turns, each tried once: anything else than both, in order, is told."""
    story = Story()
    for line in ("try a 0", "ok a 0", "try a 1", "ok a 1"):
        story.hear(line)
    place = Place(url=f"sqlite:{tmp_path}/s.db")
    state = SessionState(session_id="a", version=1, message_count=messages)
    state = replace(state, profile=replace(state.profile, turns=len(turns)))
    store = open_store(place.url)
    await store.save(state, expected_version=0, entries=stored(*turns))
    assert len(await store.transcript(SessionKey(session_id="a"))) == len(turns)
    await store.close()
    with pytest.raises(Violated, match=broken):
        await check(place, story)
