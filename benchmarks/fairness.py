"""How long an honest caller waits while others attack: `python -m benchmarks.fairness`.

One guard with everything it detects runs on loopback before a model that answers at once. An
honest caller with a key of its own has short conversations, first alone, then beside 64
connections: sixty of people who think between their turns, and four attackers, each with a key of
its own. They replay long sessions, send megabytes of new history, long messages, and many turns
of one session at once. Reported is the honest caller's time per turn in both cases and their
ratio. Attackers and guard share the machine, so the attackers run at low priority, as if on
machines of their own; what they got done is reported. Run it where nothing else does.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from itertools import count
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import httpx

from benchmarks.gateway import QUESTIONS
from benchmarks.servers import running_guard, running_upstream

HONEST, ORDINARY = "honest", "ordinary"
ATTACKERS = ("replay", "history", "long", "parallel")
REPLAYED_TURNS = 500
_numbers = count()
Ask = Callable[[httpx.AsyncClient], Awaitable[int]]
Counts = Mapping[str, "Synchronized[int]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What one caller waited for its turns."""

    turns: int
    errors: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The honest caller's waits, and how often each of the others was answered meanwhile."""

    quiet: Waits
    loaded: Waits
    others: dict[str, int]

    @property
    def p99_ratio(self) -> float:
        """How many times longer the honest caller's slowest turns take."""
        return round(self.loaded.p99_ms / self.quiet.p99_ms, 2)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="Time for each measurement.")
    parser.add_argument("--connections", type=int, default=64, help="Of all others together.")
    parser.add_argument("--think-s", type=float, default=4.0, help="Pause of ordinary callers.")
    parser.add_argument(
        "--nice", type=int, default=10, help="How much lower the attackers' own priority is."
    )
    parser.add_argument("--no-model", action="store_true", help="Judge by the rules alone.")
    parser.add_argument("--out", type=Path, default=Path("artifacts/fairness.json"))
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(running_upstream())
        guard = running_guard(
            upstream, folder, use_model=not options.no_model, service={"keys": _keys()}
        )
        base = stack.enter_context(guard)
        found = asyncio.run(_measured(base, options))
    for name, waits in (("quiet", found.quiet), ("loaded", found.loaded)):
        print(
            f"{name:<7} p50 {waits.p50_ms:8.1f} ms  p99 {waits.p99_ms:8.1f} ms  "
            f"{waits.turns} turns, {waits.errors} errors"
        )
    print("others done: " + ", ".join(f"{name} {count}" for name, count in found.others.items()))
    print(f"p99 under attack over quiet p99: {found.p99_ratio}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    body = asdict(found) | {"p99_ratio": found.p99_ratio}
    options.out.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


async def _measured(base: str, options: argparse.Namespace) -> Measured:
    async with _client(base, HONEST) as honest, _client(base, "replay") as attacker:
        await _converse(honest, min(3.0, options.seconds))
        await _fill_replayed(attacker)
        quiet = await _converse(honest, options.seconds)
        # In a process of their own: what they compute to attack is no wait of the honest caller.
        context = multiprocessing.get_context("spawn")
        done = {name: context.Value("i", 0) for name in (ORDINARY, *ATTACKERS)}
        others = context.Process(target=_attack, args=(base, options, done), daemon=True)
        others.start()
        # The attackers' process takes a while to start and to open its connections.
        await asyncio.sleep(3.0)
        loaded = await _converse(honest, options.seconds)
        others.terminate()
        others.join()
    return Measured(
        quiet=quiet, loaded=loaded, others={name: count.value for name, count in done.items()}
    )


def _attack(base: str, options: argparse.Namespace, done: Counts) -> None:
    os.nice(options.nice)
    asyncio.run(_others(base, options.connections, options.think_s, done))


async def _converse(client: httpx.AsyncClient, seconds: float) -> Waits:
    """Take turn after turn, ten to a session, and time each."""
    took, errors = [], 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        before = time.perf_counter()
        errors += await _turn(client, f"honest-{len(took) // 10}-{seconds}") != 200
        took.append(time.perf_counter() - before)
    took.sort()
    return Waits(
        turns=len(took),
        errors=errors,
        p50_ms=round(1000 * took[len(took) // 2], 2),
        p99_ms=round(1000 * took[int(len(took) * 0.99)], 2),
    )


async def _turn(client: httpx.AsyncClient, session: str, text: str | None = None) -> int:
    number = next(_numbers)
    said = text or f"{QUESTIONS[number % len(QUESTIONS)]} ({number})"
    reply = await client.post("/v1/guard/turn", json={"user_input": said, "session_id": session})
    return reply.status_code


async def _others(base: str, connections: int, think_s: float, done: Counts) -> None:
    attacks: dict[str, Ask] = {
        "replay": _replay,
        "history": _new_history,
        "long": _long_message,
        "parallel": _parallel,
    }
    work = [_over_and_over(base, name, attacks[name], done) for name in ATTACKERS]
    work += [
        _over_and_over(base, ORDINARY, _ordinary, done, pause_s=think_s)
        for _ in range(connections - len(ATTACKERS))
    ]
    await asyncio.gather(*work)


async def _over_and_over(
    base: str, name: str, ask: Ask, done: Counts, *, pause_s: float = 0.0
) -> None:
    async with _client(base, name) as client:
        while True:
            # A refused or lost request of an attacker is part of the attack.
            with suppress(httpx.HTTPError):
                await ask(client)
                done[name].value += 1
            await asyncio.sleep(pause_s)


async def _ordinary(client: httpx.AsyncClient) -> int:
    return await _turn(client, f"ordinary-{next(_numbers) // 10}")


async def _replay(client: httpx.AsyncClient) -> int:
    """Replay a long session four times at once."""
    replays = (
        client.post("/v1/sessions/replayed/replay", json={"preset": "strict"}) for _ in range(4)
    )
    return max(reply.status_code for reply in await asyncio.gather(*replays))


async def _new_history(client: httpx.AsyncClient) -> int:
    """Send a conversation of megabytes that the guard has never seen."""
    number = next(_numbers)
    messages = [
        {"role": role, "content": f"{number} {at} " + "some words of a long story " * 200}
        for at in range(400)
        for role in ("user", "assistant")
    ]
    messages.append({"role": "user", "content": "And then?"})
    reply = await client.post("/v1/chat/completions", json={"model": "b", "messages": messages})
    return reply.status_code


async def _long_message(client: httpx.AsyncClient) -> int:
    """Send eight messages of twenty thousand characters at once."""
    texts = (f"{next(_numbers)} " + "all sorts of words and more " * 715 for _ in range(8))
    sent = (_turn(client, f"long-{next(_numbers)}", text) for text in texts)
    return max(await asyncio.gather(*sent))


async def _parallel(client: httpx.AsyncClient) -> int:
    """Send sixty turns of one session at once."""
    session = f"parallel-{next(_numbers)}"
    return max(await asyncio.gather(*(_turn(client, session) for _ in range(60))))


async def _fill_replayed(client: httpx.AsyncClient) -> None:
    """Store the long session that is replayed."""
    for _ in range(REPLAYED_TURNS):
        await _turn(client, "replayed")


def _client(base: str, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=base,
        timeout=120,
        headers={"authorization": f"Bearer {key}"},
        limits=httpx.Limits(max_connections=100),
        trust_env=False,
    )


def _keys() -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "sha256": hashlib.sha256(name.encode()).hexdigest(),
            "scopes": ["guard", "read"],
            "requests_per_minute": 1_000_000,
        }
        for name in (HONEST, ORDINARY, *ATTACKERS)
    ]


if __name__ == "__main__":
    main()
