"""Judges whole talks of development sources with the engine as it ships, turn by turn.

    python -m training.whole_talks .train/data [--per-source 80]

A talk counts by its highest turn, as it does in the published numbers. The sources train no reader;
their last turns set the priors of later turns, so this compares versions and promises nothing.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from promptguard.config import ControllerConfig
from promptguard.conversation import messages_from
from promptguard.model.network import log_odds
from promptguard.turns.input import steps_of
from promptguard.turns.judge import TurnJudge
from promptguard.turns.walk import walk
from training.fit_talks import MAX_TURNS, drawn, is_usable
from training.records import read
from training.score import macro, matched


def main() -> None:
    """Judge and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--per-source", type=int, default=80)
    options = parser.parse_args()
    records = [r for r in read(options.data / "dev_records.jsonl.gz") if is_usable(r, "dev")]
    random.Random(7).shuffle(records)
    talks = drawn(records, options.per_source)
    judge = TurnJudge.open(ControllerConfig(store="memory:"))
    scores = []
    for record in talks:
        said = messages_from([m for m in record["messages"] if m.get("content")])
        verdicts = (verdict for verdict, _ in walk(judge, steps_of(said)[:MAX_TURNS]))
        scores.append(max(log_odds(verdict.turn_risk) for verdict in verdicts))
    labels = [int(record["label"] == "attack") for record in talks]
    sources = [record["source"] for record in talks]
    found = macro(scores, labels, sources) | {"within": matched(scores, labels, sources)}
    print(f"{len(talks)} talks:", ", ".join(f"{name} {value:.3f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
