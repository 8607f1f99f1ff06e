"""Measures the embedded evaluation on the prompts that the first design was tried on.

python -m benchmarks.first_prompts FILE [--preset strict] [--half A|B]

Each prompt is judged under both evaluation types. The share that is blocked is printed by category,
those of innocent ones last. A half is chosen by a hash of the id: A was looked at, B was not.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from benchmarks.attribution import TYPES, asked_in
from benchmarks.halves import add_half, half_of
from promptguard import PromptGuard, PromptGuardConfig
from promptguard.core.decision import Decision
from promptguard.evaluators.metrics import ReciprocityMetrics
from promptguard.runs.intervals import wilson
from promptguard.validation.dataset import Case, load_dataset

SOURCE = "promptguard_680"


def lines(found: Iterable[tuple[Case, bool]]) -> Iterable[str]:
    """Yield a line for each kind: how many were blocked, with the interval of the share."""
    kinds: dict[tuple[bool, str], list[bool]] = {}
    for case, is_blocked in found:
        kinds.setdefault((not case.is_attack, case.category or case.label), []).append(is_blocked)
    for (is_innocent, name), blocked in sorted(kinds.items()):
        low, high = wilson(sum(blocked), len(blocked))
        share = sum(blocked) / len(blocked)
        label = "innocent" if is_innocent else "attack"
        yield f"{label:8} {name:24} {len(blocked):4} {share:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    """Judge and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--preset", default="strict")
    add_half(parser)
    options = parser.parse_args()
    cases = [
        case
        for case in load_dataset([options.file]).cases
        if case.source == SOURCE and options.half in (None, half_of(case.id, byte=0))
    ]
    guard = PromptGuard(PromptGuardConfig(evaluation_type=TYPES, preset=options.preset))
    judged = guard.evaluate_batch_sync(asked_in(case.messages) for case in cases)
    found = [
        (case, judgement.decision is Decision.BLOCK)
        for case, judgement in zip(cases, judged, strict=True)
        if isinstance(judgement, ReciprocityMetrics)
    ]
    print("\n".join(lines(found)))
    if len(found) < len(cases):
        print(f"{len(cases) - len(found)} could not be judged.")


if __name__ == "__main__":
    main()
