"""What the gateway costs: `python -m benchmarks.gateway [--litellm VENV] [--rounds 5]`.

A stand-in upstream that answers at once runs on loopback. The same requests go to it directly,
through the guard with everything it detects, and, where `--litellm` names a Python or a virtual
environment that has `litellm[proxy]`, through LiteLLM's proxy without any guardrail. Each request
is the first turn of a conversation of its own, unless `--turns` says how long they are. With one
connection the difference to the direct way in the same round is what a turn costs; with many the
requests per second say how much one process carries. The ways take turns, so that what else the
machine does hits all alike; reported are medians over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median

import httpx

from benchmarks.servers import (
    litellm_python,
    litellm_version,
    running_guard,
    running_litellm,
    running_upstream,
)
from promptguard import __version__

HISTORY = Path(__file__).parent / "history.jsonl"
DIRECT, GUARDED, LITELLM = "direct", "promptguard", "litellm"
WARM_UP_S = 2.0
QUESTIONS = (
    "What is a good soup for a cold evening?",
    "Can you explain how photosynthesis works in two sentences?",
    "Write a short note to my neighbour about the parcel I took in for her.",
    "My regex does not match the second group, what could be wrong with it?",
)
Said = dict[str, str]
# No two alike, or they would be taken for one conversation told twice.
_questions = (f"{QUESTIONS[number % len(QUESTIONS)]} ({number})" for number in count())


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to measure: rounds, seconds and connections of each, turns of a conversation."""

    rounds: int
    seconds: float
    connections: int
    turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one way of asking took in one round."""

    requests: int
    errors: int
    per_second: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One way in one round: alone on one connection, then on many."""

    alone: Load
    crowded: Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One way over all rounds, medians; `added` is against the direct way of the same round."""

    p50_ms: float
    p99_ms: float
    added_p50_ms: float
    added_p99_ms: float
    per_second: float
    requests: int
    errors: int


def main() -> None:
    """Measure, print, write."""
    options = _options()
    plan = Plan(
        rounds=options.rounds,
        seconds=options.seconds,
        connections=options.connections,
        turns=options.turns,
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        direct = stack.enter_context(running_upstream())
        guard = running_guard(direct, folder, store=options.store, use_model=not options.no_model)
        ways = {DIRECT: direct, GUARDED: stack.enter_context(guard)}
        other = None
        if options.litellm is not None:
            python = litellm_python(options.litellm)
            other = litellm_version(python)
            ways[LITELLM] = stack.enter_context(running_litellm(python, direct, folder))
        rounds = asyncio.run(take_turns(ways, plan))
    costs = {name: cost(rounds[name], rounds[DIRECT]) for name in ways}
    for line in lines(costs, many=plan.connections, litellm=other):
        print(line)
    body = {
        "benchmark": "gateway",
        "version": __version__,
        "time": round(time.time()),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "litellm_version": other,
        "uses_model": not options.no_model,
        **asdict(plan),
        **{name: asdict(each) for name, each in costs.items()},
        **ratios(costs),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    each_round = {name: [asdict(each) for each in rounds[name]] for name in ways}
    whole = {**body, "each_round": each_round}
    options.out.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    if not options.no_history:
        with HISTORY.open("a", encoding="utf-8") as history:
            history.write(json.dumps(body) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--litellm", type=Path, help="Python or venv that has litellm[proxy].")
    parser.add_argument("--rounds", type=int, default=5, help="How often the ways take turns.")
    parser.add_argument("--seconds", type=float, default=5.0, help="Time for each measurement.")
    parser.add_argument("--connections", type=int, default=64, help="Connections at once.")
    parser.add_argument("--turns", type=int, default=1, help="Turns of each conversation.")
    parser.add_argument("--store", help="The guard's store; default: a new SQLite file.")
    parser.add_argument("--no-model", action="store_true", help="Judge by the rules alone.")
    parser.add_argument("--out", type=Path, default=Path("artifacts/gateway.json"))
    parser.add_argument("--no-history", action="store_true", help="Do not add to history.jsonl.")
    return parser.parse_args()


async def take_turns(ways: Mapping[str, str], plan: Plan) -> dict[str, list[Round]]:
    """Ask each way in turn, round after round; the first requests are not counted."""
    for base in ways.values():
        await load(base, replace(plan, connections=1, seconds=min(WARM_UP_S, plan.seconds)))
    found: dict[str, list[Round]] = {name: [] for name in ways}
    for _ in range(plan.rounds):
        one = replace(plan, connections=1)
        alone = {name: await load(base, one) for name, base in ways.items()}
        crowded = {name: await load(base, plan) for name, base in ways.items()}
        for name in ways:
            found[name].append(Round(alone=alone[name], crowded=crowded[name]))
    return found


async def load(base: str, plan: Plan) -> Load:
    """Converse over and over on so many connections for so long."""
    took: list[float] = []
    errors = 0

    async def converse(client: httpx.AsyncClient, end: float) -> None:
        nonlocal errors
        said: list[Said] = []
        while time.perf_counter() < end:
            if len(said) >= 2 * plan.turns:
                said = []
            said.append({"role": "user", "content": next(_questions)})
            before = time.perf_counter()
            answer = await ask(client, said)
            took.append(time.perf_counter() - before)
            errors += answer is None
            said.append({"role": "assistant", "content": answer or ""})

    async with AsyncExitStack() as stack:
        # One client for many connections would look at all of them for each request.
        clients = [
            await stack.enter_async_context(
                # Nothing here speaks TLS, whose certificates each client would load.
                httpx.AsyncClient(base_url=base, timeout=60, verify=False, trust_env=False)
            )
            for _ in range(plan.connections)
        ]
        opening: Said = {"role": "user", "content": "warm up"}
        # Connections are opened before the clock starts.
        await asyncio.gather(*(ask(client, [opening]) for client in clients))
        start = time.perf_counter()
        await asyncio.gather(*(converse(client, start + plan.seconds) for client in clients))
        passed = time.perf_counter() - start
    took.sort()
    return Load(
        requests=len(took),
        errors=errors,
        per_second=round(len(took) / passed, 1),
        p50_ms=round(1000 * took[len(took) // 2], 2),
        p99_ms=round(1000 * took[int(len(took) * 0.99)], 2),
    )


async def ask(client: httpx.AsyncClient, said: Sequence[Said]) -> str | None:
    """Return the answer, None where there is none."""
    reply = await client.post(
        "/v1/chat/completions", json={"model": "bench", "messages": list(said)}
    )
    if reply.status_code != 200:
        return None
    return str(reply.json()["choices"][0]["message"]["content"])


def cost(rounds: Sequence[Round], direct: Sequence[Round]) -> Cost:
    """Return the medians of one way, and what it adds to the direct one."""
    pairs = list(zip(rounds, direct, strict=True))
    loads = [load for each in rounds for load in (each.alone, each.crowded)]
    return Cost(
        p50_ms=round(median(each.alone.p50_ms for each in rounds), 2),
        p99_ms=round(median(each.alone.p99_ms for each in rounds), 2),
        added_p50_ms=round(median(way.alone.p50_ms - base.alone.p50_ms for way, base in pairs), 2),
        added_p99_ms=round(median(way.alone.p99_ms - base.alone.p99_ms for way, base in pairs), 2),
        per_second=round(median(each.crowded.per_second for each in rounds), 1),
        requests=sum(each.requests for each in loads),
        errors=sum(each.errors for each in loads),
    )


def ratios(costs: Mapping[str, Cost]) -> dict[str, float]:
    """Return ours over LiteLLM's, which hardly depends on the machine; empty without LiteLLM."""
    if LITELLM not in costs:
        return {}
    ours, theirs = costs[GUARDED], costs[LITELLM]
    return {
        "added_p50_over_litellm": round(ours.added_p50_ms / theirs.added_p50_ms, 3),
        "added_p99_over_litellm": round(ours.added_p99_ms / theirs.added_p99_ms, 3),
        "per_second_over_litellm": round(ours.per_second / theirs.per_second, 3),
    }


def lines(costs: Mapping[str, Cost], *, many: int, litellm: str | None) -> list[str]:
    """Return the measurements as one reads them."""
    heads = ("p50 ms", "p99 ms", "+p50 ms", "+p99 ms", f"/s on {many}", "errors")
    table = [f"{'':<12}" + "".join(f"{head:>10}" for head in heads)]
    for name, each in costs.items():
        numbers = (each.p50_ms, each.p99_ms, each.added_p50_ms, each.added_p99_ms, each.per_second)
        cells = "".join(f"{number:10.2f}" for number in numbers)
        table.append(f"{name:<12}{cells}{each.errors:10d}")
    if litellm is None:
        return [*table, "LiteLLM was left out; --litellm VENV measures its proxy in the same run."]
    found = ratios(costs)
    compared = (
        f"promptguard over LiteLLM {litellm} without a guardrail: "
        f"added p50 {found['added_p50_over_litellm']:.2f}, "
        f"added p99 {found['added_p99_over_litellm']:.2f}, "
        f"requests per second {found['per_second_over_litellm']:.2f}"
    )
    return [*table, compared]


if __name__ == "__main__":
    main()
