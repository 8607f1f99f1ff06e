"""What a turn costs as its session grows: `python -m benchmarks.long_session`.

One guard runs on loopback before a model that answers at once. One client takes turn after turn of
one session through the gateway. Reported is the median time of a turn at several lengths of the
session, over the median at the first: 1.0 means that a turn costs the same however much was said
before. The rules alone judge, unless `--model` is given: what grows would be beside the readers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import httpx

from benchmarks.gateway import QUESTIONS
from benchmarks.servers import running_guard, running_upstream

MARKS = (300, 1_000, 5_000, 10_000, 20_000)
# How many turns up to a mark are timed.
TIMED = 200


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=MARKS[-1], help="Length of the session.")
    parser.add_argument("--model", action="store_true", help="Judge with the readers as well.")
    parser.add_argument("--store", help="Store address; default an SQLite file of its own.")
    parser.add_argument("--out", type=Path, default=Path("artifacts/long_session.json"))
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(running_upstream())
        # The service's own bound must not end the session.
        settings = {"max_turns": 10 * options.turns}
        guard = running_guard(
            upstream, folder, store=options.store, use_model=options.model, service=settings
        )
        base = stack.enter_context(guard)
        marks = [mark for mark in MARKS if mark <= options.turns] or [options.turns]
        found = ratios(base, marks)
    for mark, ratio in found.items():
        print(f"turn {mark:>6}: {ratio:.2f} times the first")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def ratios(base: str, marks: list[int], timed: int = TIMED) -> dict[int, float]:
    """Return the median time of the `timed` turns before each mark, over that at the first."""
    medians: dict[int, float] = {}
    took: list[float] = []
    with httpx.Client(base_url=base, timeout=60, trust_env=False) as client:
        for turn in range(1, marks[-1] + 1):
            took.append(_turn(client, turn))
            if turn in marks:
                medians[turn] = statistics.median(took[-timed:])
    return {mark: round(medians[mark] / medians[marks[0]], 2) for mark in marks}


def _turn(client: httpx.Client, number: int) -> float:
    question = f"{QUESTIONS[number % len(QUESTIONS)]} ({number})"
    body = {"model": "b", "messages": [{"role": "user", "content": question}]}
    began = time.perf_counter()
    reply = client.post("/v1/chat/completions", json=body, headers={"x-session-id": "long"})
    took = time.perf_counter() - began
    reply.raise_for_status()
    return took


if __name__ == "__main__":
    main()
