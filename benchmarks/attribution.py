"""Shows which evaluation type finds what the other does not, by kind of record.

python -m benchmarks.attribution FILE... [--per-kind 40] [--preset strict] [--seed 0]

Each record's last user message is judged by the embedded judge under both types, with the system
prompt and the messages before it. At most 300 records are drawn, evenly over the kinds.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from promptguard import PromptGuard, PromptGuardConfig
from promptguard.conversation import Message, Role
from promptguard.core.prompt import PromptInput
from promptguard.evaluators.metrics import ReciprocityMetrics
from promptguard.validation.compare import mcnemar
from promptguard.validation.dataset import Case, load_dataset

TYPES = ("ayni_relational", "relational_structure")
LIMIT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many records of one kind both types found, only one of them, and neither."""

    kind: str
    n: int
    both: int
    only_first: int
    only_second: int

    @property
    def neither(self) -> int:
        """Records that no type found."""
        return self.n - self.both - self.only_first - self.only_second


def drawn(cases: Iterable[Case], per_kind: int, seed: int) -> tuple[Case, ...]:
    """Return at most `per_kind` cases of each kind and `LIMIT` in all, the same for a seed."""
    kinds: dict[str, list[Case]] = {}
    for case in cases:
        kinds.setdefault(kind_of(case), []).append(case)
    count = min(per_kind, LIMIT // max(1, len(kinds)))
    generator = random.Random(seed)
    return tuple(
        case
        # In a fixed order, because all kinds draw from one generator.
        for kind in sorted(kinds)
        for case in generator.sample(kinds[kind], min(count, len(kinds[kind])))
    )


def kind_of(case: Case) -> str:
    """Return the label with the category."""
    return f"{'attack' if case.is_attack else 'benign'}: {case.category or case.label}"


def asked_in(messages: Sequence[Message]) -> PromptInput:
    """Return the last user message as the prompt, with what stands before it."""
    at = max(i for i, message in enumerate(messages) if message.role is Role.USER)
    system = [m.content for m in messages if m.role is Role.SYSTEM]
    before = tuple(m for m in messages[:at] if m.role in (Role.USER, Role.ASSISTANT))
    return PromptInput(user=messages[at].content, system="\n".join(system) or None, history=before)


def shares(found: Iterable[tuple[str, Sequence[str]]]) -> tuple[Share, ...]:
    """Count (kind, types that found it) by kind, in the order of the names."""
    counts: dict[str, Counter[tuple[bool, bool]]] = {}
    for kind, by in found:
        first, second = (name in by for name in TYPES)
        counts.setdefault(kind, Counter())[first, second] += 1
    return tuple(_share(kind, counts[kind]) for kind in sorted(counts))


def _share(kind: str, counts: Mapping[tuple[bool, bool], int]) -> Share:
    return Share(
        kind=kind,
        n=sum(counts.values()),
        both=counts.get((True, True), 0),
        only_first=counts.get((True, False), 0),
        only_second=counts.get((False, True), 0),
    )


def table(rows: Sequence[Share]) -> str:
    """Return the shares as Markdown."""
    lines = [f"| kind | n | both | only {TYPES[0]} | only {TYPES[1]} | neither |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    lines += [
        f"| {row.kind} | {row.n} | {row.both} | {row.only_first} | {row.only_second} | "
        f"{row.neither} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Draw, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--per-kind", type=int, default=40)
    parser.add_argument("--preset", default="balanced")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cases = drawn(load_dataset(options.files).cases, options.per_kind, options.seed)
    guard = PromptGuard(PromptGuardConfig(evaluation_type=TYPES, preset=options.preset))
    judged = guard.evaluate_batch_sync(asked_in(case.messages) for case in cases)
    pairs = zip(cases, judged, strict=True)
    found = [(kind_of(c), m.detected_by) for c, m in pairs if isinstance(m, ReciprocityMetrics)]
    rows = shares(found)
    print(table(rows))
    attacks = [row for row in rows if row.kind.startswith("attack")]
    first, second = sum(r.only_first for r in attacks), sum(r.only_second for r in attacks)
    print(f"\n{len(found)} of {len(cases)} judged; attacks found by one type alone: ", end="")
    print(f"{first} and {second}; McNemar's exact p {mcnemar(first, second):.3g}.")


if __name__ == "__main__":
    main()
