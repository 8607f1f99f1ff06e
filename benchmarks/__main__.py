"""Measures speed: `python -m benchmarks [--out FILE] [--turns N]`, also `make bench`.

Ratios are printed beside times, because times depend on the machine and ratios hardly do.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.speed import Speed, measure_speed
from promptguard import __version__

HISTORY = Path(__file__).parent / "history.jsonl"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("artifacts/speed.json"))
    parser.add_argument("--turns", type=int, default=300, help="Turns to time.")
    parser.add_argument("--long", type=int, default=10_000, help="Turns of the long session.")
    parser.add_argument("--no-history", action="store_true", help="Do not add to history.jsonl.")
    options = parser.parse_args()
    found = measure_speed(turns=options.turns, long_turns=options.long)
    body = {
        "version": __version__,
        "time": round(time.time()),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        **asdict(found),
        **ratios(found),
    }
    for line in lines(found):
        print(line)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    if not options.no_history:
        with HISTORY.open("a", encoding="utf-8") as history:
            history.write(json.dumps(body) + "\n")


def ratios(found: Speed) -> dict[str, float]:
    """Return what does not depend on the machine."""
    return {
        "turn_over_model_p50": round(found.turn_p50_ms / found.model_p50_ms, 3),
        "turn_over_model_p99": round(found.turn_p99_ms / found.model_p99_ms, 3),
        "late_over_early": round(found.late_turn_ms / found.early_turn_ms, 3),
    }


def lines(found: Speed) -> list[str]:
    """Return the measurements as one reads them."""
    ratio = ratios(found)
    return [
        (
            f"turn            p50 {found.turn_p50_ms:8.2f} ms   p95 {found.turn_p95_ms:8.2f} ms   "
            f"p99 {found.turn_p99_ms:8.2f} ms"
        ),
        f"model alone     p50 {found.model_p50_ms:8.2f} ms   p99 {found.model_p99_ms:8.2f} ms",
        (
            f"turn / model    p50 {ratio['turn_over_model_p50']:8.2f}      "
            f"p99 {ratio['turn_over_model_p99']:8.2f}"
        ),
        f"turns per second    {found.turns_per_second:8.1f}      in one process, one thread",
        f"turn {found.early_turn:<6}         {found.early_turn_ms:8.2f} ms   median",
        (
            f"turn {found.late_turn:<6}         {found.late_turn_ms:8.2f} ms   "
            f"ratio {ratio['late_over_early']:.2f}"
        ),
        f"stored state        {found.late_state_bytes:8d} bytes at turn {found.late_turn}",
        f"evaluate overhead   {found.evaluate_overhead_ms:8.2f} ms   median, instant judge",
        f"loading             {found.load_s:8.2f} s",
        f"memory              {found.memory_mib:8.0f} MiB  at most, in this process",
        f"                    {found.memory_loading_mib:8.0f} MiB  with the thorough reader",
    ]


if __name__ == "__main__":
    main()
