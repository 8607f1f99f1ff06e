"""The 100 + 20 case set: `python -m benchmarks.instinct DATA`.

DATA is the folder that holds `fil/jailbreak_100.jsonl`. Counts what the rules block without model
and time, and what the whole engine blocks, of the jailbreaks and of the legitimate cases.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from promptguard.config import ControllerConfig
from promptguard.conversation import Message, Role
from promptguard.turns.input import steps_of
from promptguard.turns.judge import TurnJudge
from promptguard.turns.walk import walk
from promptguard.verdict import Action, Verdict

FILE = "fil/jailbreak_100.jsonl"
RULES = ControllerConfig(store="memory:", use_model=False, use_temporal=False)
ENGINE = ControllerConfig(store="memory:")


def main() -> None:
    """Judge every case both ways and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    path = parser.parse_args().data / FILE
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    all_of = Counter(case["label"] for case in cases)
    for name, config in (("rules", RULES), ("engine", ENGINE)):
        judge = TurnJudge.open(config)
        blocked = Counter(
            case["label"]
            for case in cases
            if verdict_of(judge, case["text"]).action is Action.BLOCK
        )
        print(name, ", ".join(f"{label} {blocked[label]} of {n}" for label, n in all_of.items()))


def verdict_of(judge: TurnJudge, text: str) -> Verdict:
    """Judge a text as a conversation of one turn."""
    steps = steps_of((Message(role=Role.USER, content=text),))
    ((verdict, _),) = walk(judge, steps, session_id="case")
    return verdict


if __name__ == "__main__":
    main()
