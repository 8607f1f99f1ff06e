"""What four real models' recorded scores become under each merge strategy, and who found what.

Run it with `python docs/examples/recorded_ensemble.py`; it needs no network and no model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from promptguard.core.ensemble import merge
from promptguard.core.neutrosophic import Neutrosophic

THRESHOLD = 0.7
STRATEGIES = ("max_falsehood", "voting", "average")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One prompt: what people called it and what each model that answered said."""

    label: str
    said: dict[str, Neutrosophic]

    @property
    def is_attack(self) -> bool:
        """Extractive and manipulative prompts are attacks; reciprocal ones are benign."""
        return self.label != "reciprocal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many of how many."""

    found: int
    of: int

    def __str__(self) -> str:
        return f"{self.found / self.of:.3f}"


def records() -> list[Record]:
    """Read the recording; prompts that people called borderline are neither attack nor benign."""
    raw = json.loads(Path(__file__).with_name("four_models.json").read_text(encoding="utf-8"))
    return [
        Record(
            label=label,
            said={
                model: Neutrosophic(*value)
                for model, value in zip(raw["models"], values, strict=True)
                if value is not None
            },
        )
        for _, label, *values in raw["rows"]
        if label != "borderline"
    ]


def rates(items: Iterable[Record], detects: Callable[[Record], bool]) -> tuple[Share, Share]:
    """Return the true-positive and the false-positive rate of a detector."""
    found = {True: [0, 0], False: [0, 0]}
    for item in items:
        found[item.is_attack][0] += detects(item)
        found[item.is_attack][1] += 1
    return Share(found=found[True][0], of=found[True][1]), Share(
        found=found[False][0], of=found[False][1]
    )


def merged_detects(strategy: str) -> Callable[[Record], bool]:
    """Return the detector that merges first and then compares with the threshold."""
    return lambda item: merge(strategy, item.said).falsehood >= THRESHOLD


def model_detects(model: str) -> Callable[[Record], bool]:
    """Return the detector that listens to one model; no answer is no detection."""
    return lambda item: model in item.said and item.said[model].falsehood >= THRESHOLD


def alone(items: Iterable[Record], model: str) -> tuple[int, int]:
    """Return the attacks and the benign prompts that this model flags and no other does."""
    counts = [0, 0]
    for item in items:
        flagged = [name for name in item.said if model_detects(name)(item)]
        counts[not item.is_attack] += flagged == [model]
    return counts[0], counts[1]


def table() -> str:
    """Return both tables as Markdown."""
    items = records()
    lines = ["| merge of four models | TPR | FPR |", "|---|--:|--:|"]
    for strategy in STRATEGIES:
        hits, alarms = rates(items, merged_detects(strategy))
        lines.append(f"| {strategy} | {hits} | {alarms} |")
    lines += ["", "| model | TPR | FPR | attacks only it found | benign only it flagged |"]
    lines += ["|---|--:|--:|--:|--:|"]
    for model in items[0].said:
        hits, alarms = rates(items, model_detects(model))
        attacks, benign = alone(items, model)
        lines.append(f"| {model} | {hits} | {alarms} | {attacks} | {benign} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())  # noqa: T201  an example prints
