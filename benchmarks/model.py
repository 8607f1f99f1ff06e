"""The embedded model alone: `python -m benchmarks.model DATA [--held FILE] [--publish]`.

DATA is the folder with the test data. Every user message of a record is read on its own and the
highest reading counts; a conversation is read once more as one window. Prints the tables of the
model card: single texts, kinds, sources, languages and conversations. `--held` adds languages on
held-out training records, which hold both labels in every language. `--publish` writes the numbers
beside this file. The whole engine is measured by `benchmarks.quality`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from promptguard.config import ControllerConfig
from promptguard.conversation import Role
from promptguard.model.artifact import OUTPUTS, bundled
from promptguard.model.encoder import shared_encoder
from promptguard.runs.intervals import Measure
from promptguard.runs.report import Group, Macro, Summary
from promptguard.validation.contenders import Contender, Outcome
from promptguard.validation.dataset import Case, load_dataset
from promptguard.validation.report import summary_of
from promptguard.workers import default_jobs, map_ordered

FILE = "public_test.jsonl.gz"
PUBLISHED = Path(__file__).parent / "model.json"
KINDS = {
    "manipulative": {"jailbreak", "jailbreak_tense", "injection", "indirect_injection"},
    "extractive": {"extraction"},
    "harmful": {"harmful_request"},
}
MATCHED = "mt_"
MOST_TURNS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The model's outputs for one record; the window of a single text is not read."""

    outputs: dict[str, float]

    def outcome(self, case: Case, name: str) -> Outcome:
        """Return one output as a verdict at the shipped threshold."""
        value = self.outputs[name]
        is_flagged = value > bundled().manifest.thresholds[name]
        return Outcome(index=case.index, contender=name, score=value, is_flagged=is_flagged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table."""

    table: str
    name: str
    attacks: int
    benign: int
    values: dict[str, Measure]


def open_reader() -> Callable[[Sequence[Case]], Sequence[Reading]]:
    """Return what reads cases in a process of its own."""
    return lambda cases: [read(case) for case in cases]


def read(case: Case) -> Reading:
    """Read one record."""
    said = [m.content for m in case.messages if m.role in (Role.USER, Role.TOOL)][-MOST_TURNS:]
    readings = shared_encoder().read_messages(said)
    outputs = {name: max(getattr(r, name) for r in readings) for name in OUTPUTS}
    if len(said) > 1:
        outputs["context"] = shared_encoder().read_context(case.messages).attack
    return Reading(outputs=outputs)


def lost(_: Case) -> Reading:
    """A record that kills its process is a fault of ours: stop."""
    raise SystemExit("A record could not be read.")


def is_talk(case: Case) -> bool:
    """Say whether a record has more than one turn."""
    return sum(m.role in (Role.USER, Role.TOOL) for m in case.messages) > 1


def summary(judged: Iterable[tuple[Case, Reading]], output: str) -> Summary:
    """Measure one output on some records."""
    pairs = list(judged)
    cases = [case for case, _ in pairs]
    outcomes = [reading.outcome(case, output) for case, reading in pairs]
    return summary_of(Contender(name=output, settings=ControllerConfig()), cases, outcomes, seed=0)


def whole(table: str, name: str, found: Summary) -> Row:
    """Return the means over sources."""
    macro: Macro = found.macro
    names = ("auc", "recall_at_1", "recall_at_5", "auc_within", "recall", "false_positive_rate")
    return Row(
        table=table,
        name=name,
        attacks=found.overall.attacks,
        benign=found.overall.benign,
        values={each: getattr(macro, each) for each in names},
    )


def one(table: str, group: Group) -> Row:
    """Return one group's line."""
    names = ("auc", "auc_within", "recall_at_5", "recall", "false_positive_rate", "accuracy")
    return Row(
        table=table,
        name=group.name,
        attacks=group.attacks,
        benign=group.benign,
        values={each: getattr(group, each) for each in names},
    )


def by_kind(judged: Sequence[tuple[Case, Reading]]) -> list[Row]:
    """Each kind's own output on the attacks of that kind, against all innocent texts."""
    return [
        whole(
            "kinds",
            kind,
            summary([(c, r) for c, r in judged if not c.is_attack or c.category in wanted], kind),
        )
        for kind, wanted in KINDS.items()
    ]


def seed_names(judged: Sequence[tuple[Case, Reading]]) -> list[Row]:
    """The 680-prompt set under its own names."""
    own = [(c, r) for c, r in judged if c.source == "promptguard_680"]
    parts: dict[str, Callable[[Case], bool]] = {
        "manipulative": lambda c: c.category == "jailbreak",
        "extractive": lambda c: c.category == "extraction",
        "reciprocal": lambda c: not c.is_attack,
    }
    return [
        whole("promptguard_680", name, summary([(c, r) for c, r in own if part(c)], "attack"))
        for name, part in parts.items()
    ]


def languages(table: str, judged: Sequence[tuple[Case, Reading]]) -> list[Row]:
    """Every language on its own, single texts."""
    return [one(table, group) for group in summary(judged, "attack").by_language]


def rows_of(cases: Sequence[Case], jobs: int) -> list[Row]:
    """Return every line of the tables."""
    readings = list(map_ordered(open_reader, cases, jobs=jobs, lost=lost))
    judged = list(zip(cases, readings, strict=True))
    single = [(c, r) for c, r in judged if not is_talk(c)]
    multi = [(c, r) for c, r in judged if is_talk(c)]
    texts, context = summary(single, "attack"), summary(multi, "context")
    message = summary(multi, "attack")
    return [
        whole("single texts", "attack", texts),
        *by_kind(single),
        *(one("sources", group) for group in texts.by_source),
        *seed_names(single),
        *languages("languages", single),
        whole("conversations", "context head", context),
        whole("conversations", "highest message", message),
        *(
            one(f"matched, {name}", group)
            for name, found in (("context head", context), ("highest message", message))
            for group in found.by_source
            if group.name.startswith(MATCHED)
        ),
    ]


def held_rows(path: Path, jobs: int) -> list[Row]:
    """Languages on records that were kept from training."""
    cases = [case for case in load_dataset([path]).cases if not is_talk(case)]
    readings = map_ordered(open_reader, cases, jobs=jobs, lost=lost)
    return languages(
        "languages, held-out training records", list(zip(cases, readings, strict=True))
    )


def shown(found: Measure) -> str:
    """Return a value with its interval."""
    if found.value is None:
        return "-"
    span = "" if found.low is None else f" ({found.low:.3f} to {found.high:.3f})"
    return f"{found.value:.3f}{span}"


def markdown(rows: Sequence[Row]) -> str:
    """Return all tables."""
    lines: list[str] = []
    for table in dict.fromkeys(row.table for row in rows):
        own = [row for row in rows if row.table == table]
        names = [n for n in own[0].values if any(r.values[n].value is not None for r in own)]
        lines += [f"\n### {table}\n", "| | attacks | benign | " + " | ".join(names) + " |"]
        lines.append("|---|--:|--:|" + "--:|" * len(names))
        lines += [
            f"| {row.name} | {row.attacks} | {row.benign} | "
            + " | ".join(shown(row.values[name]) for name in names)
            + " |"
            for row in own
        ]
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--held", type=Path, help="Held-out training records.")
    parser.add_argument("--jobs", type=int, default=default_jobs())
    parser.add_argument("--sample", type=int, help="Draw so many cases.")
    parser.add_argument("--publish", action="store_true", help="Write what is measured.")
    options = parser.parse_args()
    cases = load_dataset([options.data / FILE], sample=options.sample, seed=0).cases
    rows = rows_of(cases, options.jobs)
    if options.held:
        rows += held_rows(options.held, options.jobs)
    print(markdown(rows))
    if options.publish:
        body = {"model": bundled().manifest.identity, "rows": [asdict(row) for row in rows]}
        PUBLISHED.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
