"""Whether two versions judge alike: `python -m benchmarks.same_verdicts OUT.json`.

Judges the bundled scenarios, and with `--records FILE --count N` a seeded sample of a JSON Lines
file, and writes every number of every verdict in full precision. `--against OLD.json` compares
with what another version wrote, bit for bit; the exit status is 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

from promptguard.config import ControllerConfig
from promptguard.errors import PromptGuardError
from promptguard.evaluation import PromptGuard
from promptguard.records import Record, read_records
from promptguard.scenarios import Scenario, shipped_scenarios
from promptguard.turns.input import Content, Step, TurnInput, steps_of
from promptguard.turns.judge import TurnJudge
from promptguard.turns.walk import walk

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
MOST_SHOWN = 20


def main() -> None:
    """Judge, write, and compare where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--records", type=Path, help="A JSON Lines file to draw records from.")
    parser.add_argument("--count", type=int, default=500, help="How many records to draw.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--against", type=Path, help="What another version wrote.")
    options = parser.parse_args()
    verdicts = dict(scenario_verdicts())
    verdicts |= dict(evaluations())
    if options.records:
        verdicts |= dict(record_verdicts(options.records, options.count, options.seed))
    options.out.write_text(json.dumps(verdicts, indent=1) + "\n", encoding="utf-8")
    print(f"{len(verdicts)} conversations and prompts, written to {options.out}.")
    if options.against:
        # Both sides are read back from JSON, so that neither form has an advantage.
        new = json.loads(options.out.read_text(encoding="utf-8"))
        sys.exit(compare(json.loads(options.against.read_text(encoding="utf-8")), new))


def scenario_verdicts() -> Iterator[tuple[str, Json]]:
    """Yield the verdicts on each bundled scenario, under its own settings."""
    for scenario in shipped_scenarios():
        judge = _judge(scenario.config)
        yield f"scenario {scenario.id}", _walked(judge, _steps(scenario))


def evaluations() -> Iterator[tuple[str, Json]]:
    """Yield the evaluation of each bundled scenario's last message, as a prompt of its own."""
    guard = PromptGuard()
    for scenario in shipped_scenarios():
        metrics = guard.evaluate_sync(scenario.turns[-1].user)
        yield (
            f"prompt {scenario.id}",
            {
                "decision": metrics.decision.value,
                "value": list(metrics.value.as_tuple()),
                "worst": list(metrics.worst.as_tuple()),
                "ayni_balance": metrics.ayni_balance,
                "types": {name: list(v) for name, v in metrics.ensemble_results.items()},
            },
        )
    guard.close_sync()


def record_verdicts(path: Path, count: int, seed: int) -> Iterator[tuple[str, Json]]:
    """Yield the verdicts on `count` records drawn from a file."""
    judge = _judge(ControllerConfig())
    records = [item for item in read_records([path]) if isinstance(item, Record)]
    for record in random.Random(seed).sample(records, min(count, len(records))):
        name = f"record {record.file}:{record.number}"
        try:
            yield name, _walked(judge, steps_of(record.messages))
        except PromptGuardError as error:
            yield name, {"error": type(error).__name__}


def compare(old: dict[str, Json], new: dict[str, Json]) -> int:
    """Print where two versions differ; return 1 where they do."""
    differences = [
        (name, place)
        for name in sorted(old.keys() | new.keys())
        for place in _differences(old.get(name), new.get(name))
    ]
    for name, place in differences[:MOST_SHOWN]:
        print(f"{name}: {place}")
    same = len(old.keys() | new.keys()) - len({name for name, _ in differences})
    print(f"{same} alike, {len({name for name, _ in differences})} differ.")
    return int(bool(differences))


def _differences(old: Json, new: Json, place: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(key), new.get(key), f"{place}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(one, other, f"{place}[{number}]")
    elif old != new or type(old) is not type(new):
        yield f"{place or 'whole'}: {old!r} -> {new!r}"


def _walked(judge: TurnJudge, steps: tuple[Step, ...]) -> Json:
    return [verdict.to_dict() for verdict, _ in walk(judge, steps)]


def _steps(scenario: Scenario) -> tuple[Step, ...]:
    return tuple(
        Step(
            turn=TurnInput(
                text=turn.user,
                contents=tuple(Content(text=text) for text in turn.tools),
                system=scenario.system,
            ),
            reply=turn.reply,
        )
        for turn in scenario.turns
    )


def _judge(config: ControllerConfig) -> TurnJudge:
    """Return one judge for all that have the same settings."""
    return _opened(config.model_dump_json())


@cache
def _opened(settings: str) -> TurnJudge:
    return TurnJudge.open(ControllerConfig.model_validate_json(settings))


if __name__ == "__main__":
    main()
