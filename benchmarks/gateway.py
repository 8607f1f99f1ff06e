"""What the gateway costs: `python -m benchmarks.gateway [--seconds 10] [--connections 64]`.

A stand-in upstream that answers at once runs on loopback, in a process of its own, and so does
the guard. The same requests go to it directly and through the guard; each is a first turn of a
conversation of its own. With one connection the difference of the medians is what a turn costs;
with many the guard is at its limit and requests per second say how much one process carries.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

QUESTIONS = (
    "What is a good soup for a cold evening?",
    "Can you explain how photosynthesis works in two sentences?",
    "Write a short note to my neighbour about the parcel I took in for her.",
    "My regex does not match the second group, what could be wrong with it?",
)
UPSTREAM = """
import json, sys
import uvicorn
BODY = json.dumps({
    "id": "chatcmpl-bench", "object": "chat.completion", "created": 1, "model": "bench",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "A vegetable soup is good."}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17},
}).encode()
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]
async def app(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})
class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets=sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"listens on http://127.0.0.1:{port}", flush=True)
Server(uvicorn.Config(app, port=0, lifespan="off", log_level="error")).run()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one way of asking took."""

    requests: int
    errors: int
    per_second: float
    p50_ms: float
    p99_ms: float


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="Time for each measurement.")
    parser.add_argument("--connections", type=int, default=64, help="Connections at once.")
    parser.add_argument("--store", help="Store to use; default: a new SQLite file.")
    parser.add_argument("--no-model", action="store_true", help="Judge by the rules alone.")
    parser.add_argument("--out", type=Path, default=Path("artifacts/gateway.json"))
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        direct = stack.enter_context(running([sys.executable, "-c", UPSTREAM]))
        store = options.store or f"sqlite:{folder}/bench.db"
        config = Path(folder) / "bench.yaml"
        config.write_text(settings(direct, store, use_model=not options.no_model))
        command = [sys.executable, "-m", "promptguard", "serve", "--config", str(config)]
        guarded = stack.enter_context(running(command))
        found = {
            f"{name}_{connections}": asyncio.run(load(base, connections, options.seconds))
            for connections in (1, options.connections)
            for name, base in (("direct", direct), ("guarded", guarded))
        }
    for name, measured in found.items():
        print(
            f"{name:<12} p50 {measured.p50_ms:8.2f} ms   p99 {measured.p99_ms:8.2f} ms   "
            f"{measured.per_second:8.1f}/s   {measured.errors} errors of {measured.requests}"
        )
    added = found["guarded_1"].p50_ms - found["direct_1"].p50_ms
    print(f"one turn adds  {added:8.2f} ms   at the median, one connection")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    body = {"added_p50_ms": added, **{name: asdict(each) for name, each in found.items()}}
    options.out.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


def settings(upstream: str, store: str, *, use_model: bool) -> str:
    """Return the guard's configuration; JSON is YAML."""
    return json.dumps(
        {
            "conversation": {"store": store, "use_model": use_model},
            "service": {
                "port": 0,
                "upstream": f"{upstream}/v1",
                "dashboard": False,
                "demo": False,
                "log_level": "warning",
                "threads": os.cpu_count() or 1,
            },
        }
    )


@contextmanager
def running(command: list[str]) -> Iterator[str]:
    """Run a server that says where it listens; gives its address."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if match := re.search(r"listens on (\S+)", line):
                yield match[1]
                return
        raise SystemExit(f"The server did not start: {' '.join(command[:4])} ...")
    finally:
        process.terminate()
        process.wait(30)


async def load(base: str, connections: int, seconds: float) -> Load:
    """Ask over and over on so many connections for so long."""
    took: list[float] = []
    errors = 0
    limits = httpx.Limits(max_connections=connections)
    async with httpx.AsyncClient(base_url=base, limits=limits, timeout=60) as client:
        await ask(client, "warm up")
        start = time.perf_counter()
        end = start + seconds

        async def one(number: int) -> None:
            nonlocal errors
            while time.perf_counter() < end:
                before = time.perf_counter()
                text = f"{QUESTIONS[len(took) % len(QUESTIONS)]} ({number}/{len(took)})"
                errors += not await ask(client, text)
                took.append(time.perf_counter() - before)

        await asyncio.gather(*(one(number) for number in range(connections)))
        passed = time.perf_counter() - start
    took.sort()
    return Load(
        requests=len(took),
        errors=errors,
        per_second=round(len(took) / passed, 1),
        p50_ms=round(1000 * took[len(took) // 2], 2),
        p99_ms=round(1000 * took[int(len(took) * 0.99)], 2),
    )


async def ask(client: httpx.AsyncClient, text: str) -> bool:
    """Ask once; say whether an answer came."""
    body = {"model": "bench", "messages": [{"role": "user", "content": text}]}
    reply = await client.post("/v1/chat/completions", json=body)
    return reply.status_code == 200


if __name__ == "__main__":
    main()
