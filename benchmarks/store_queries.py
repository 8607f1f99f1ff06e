"""Times of the dashboard's questions: `python -m benchmarks.store_queries [URL] [--sessions N]`.

Fills an empty store with ten turns a session, a million by default, and asks what the pages ask.
URL is a store that may be filled, such as `postgresql://...`; without one it is a temporary SQLite
file.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path

from promptguard.conversation import Role
from promptguard.protocols import SessionQuery, SessionStore
from promptguard.queries import LabelFilter, OverviewQuery, SessionSort, TurnFilter, TurnQuery
from promptguard.state import SessionProfile, SessionState, TranscriptEntry
from promptguard.stores import open_store
from promptguard.verdict import Action, Evidence, Mode, Verdict

START, SPACING_S, TURNS = 1_700_000_000, 26, 10
_ACTIONS = (Action.ALLOW,) * 94 + (Action.STEER,) * 3 + (Action.STRIP,) + (Action.BLOCK,) * 2
_WORKERS = 8


def main() -> None:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--sessions", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = options.url or f"sqlite:{Path(folder) / 'sessions.db'}"
        asyncio.run(_measure(url, options.sessions))


def questions(sessions: int) -> dict[str, SessionQuery | TurnQuery | OverviewQuery]:
    """Return what the pages ask, by name."""
    end = START + sessions * SPACING_S
    day = OverviewQuery(since=end - 86_400, until=end, bucket_s=3600, is_demo=False)
    everything = OverviewQuery(
        since=START, until=end, bucket_s=max(60, (end - START) // 60), is_demo=False
    )
    return {
        "overview, a day": day,
        "overview, everything": everything,
        "sessions, newest": SessionQuery(limit=50),
        "sessions, by risk": SessionQuery(limit=50, sort=SessionSort.RISK),
        "sessions, last page": SessionQuery(limit=50, offset=max(0, sessions - 50)),
        "sessions, blocked": SessionQuery(limit=50, turns=TurnFilter(actions=(Action.BLOCK,))),
        "sessions, signal": SessionQuery(limit=50, turns=TurnFilter(signal="probing")),
        "sessions, words": SessionQuery(limit=50, search=f"weather {sessions - 7}"),
        "review queue": TurnQuery(min_risk=0.3, label=LabelFilter.NONE, limit=25),
    }


async def _measure(url: str, sessions: int) -> None:
    store = open_store(url)
    began = time.perf_counter()
    # The workers draw from one iterator: sessions are made as they are stored, not all in memory.
    waiting = iter(_sessions(sessions))

    async def work() -> None:
        for state, entries in waiting:
            await store.save(state, expected_version=0, entries=entries)

    await asyncio.gather(*(work() for _ in range(_WORKERS)))
    filled_s = time.perf_counter() - began
    print(f"{sessions * TURNS:,} turns stored, {sessions / filled_s:,.0f} sessions a second")
    for name, query in questions(sessions).items():
        began = time.perf_counter()
        await _answer(store, query)
        print(f"{name:24} {(time.perf_counter() - began) * 1000:8.0f} ms")
    await store.close()


def _answer(
    store: SessionStore, query: SessionQuery | TurnQuery | OverviewQuery
) -> Awaitable[object]:
    if isinstance(query, OverviewQuery):
        return store.overview(query)
    return store.turns(query) if isinstance(query, TurnQuery) else store.page(query)


def _sessions(count: int) -> Iterator[tuple[SessionState, list[TranscriptEntry]]]:
    choose = random.Random(7)
    for number in range(count):
        at = START + number * SPACING_S
        entries = [_entry(choose, number, turn, at + turn) for turn in range(1, TURNS + 1)]
        state = SessionState(
            session_id=f"key{number % 9}:s{number:06d}",
            version=1,
            updated=float(at + TURNS),
            mode=choose.choice(list(Mode)),
            accumulated_risk=choose.random(),
            profile=SessionProfile(turns=TURNS),
        )
        yield state, entries


def _entry(choose: random.Random, number: int, turn: int, at: int) -> TranscriptEntry:
    signal = choose.choice(("intent", "probing", "context"))
    verdict = Verdict(
        turn=turn,
        action=choose.choice(_ACTIONS),
        turn_risk=choose.random() * 0.2,
        tags=("LLM01",) if number % 2 else ("LLM07", "AML.T0054"),
        evidence=(Evidence(turn=turn, signal=signal, nats=2.0, reason=f"reason {signal}"),),
        latency_ms=choose.random() * 20,
    )
    return TranscriptEntry(
        position=turn - 1,
        turn=turn,
        role=Role.USER,
        content=f"Tell me about the weather in spring and other things, {number}",
        content_hash="",
        timestamp=float(at),
        verdict=verdict.to_json(),
    )


if __name__ == "__main__":
    main()
