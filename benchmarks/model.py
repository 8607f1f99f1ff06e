"""The embedded readers alone: `python -m benchmarks.model DATA [--held FILE] [--publish]`.

DATA is the folder with the test data. Every user message of a record is read on its own and the
highest reading counts; the turns of a conversation are read once more in the light of those before,
and tool results beside the user's request. Prints the tables of the model card: single texts,
kinds, sources, languages, conversations and documents, by the quick reader alone or with
`--thorough` by both. `--held` adds languages on held-out training records, which hold both labels
in every language. `--per-source N` draws at most N of each source and label, always the same ones.
`--publish` writes the numbers beside this file. `benchmarks.quality` measures the whole engine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from promptguard.config import ControllerConfig
from promptguard.conversation import Message, Role
from promptguard.model.artifact import MESSAGE_OUTPUTS, bundled
from promptguard.model.readers import shared_readers
from promptguard.runs.intervals import Measure
from promptguard.runs.report import Group, Macro, Summary
from promptguard.turns.input import Step, steps_of
from promptguard.validation.contenders import Contender, Outcome
from promptguard.validation.dataset import Case, load_dataset
from promptguard.validation.report import summary_of
from promptguard.workers import default_jobs, map_ordered

FILE, LAYERS = "public_test.jsonl.gz", "public_test_layers.jsonl.gz"
PUBLISHED = Path(__file__).parent / "model.json"
KINDS = {
    "manipulative": {"jailbreak", "jailbreak_tense", "injection", "indirect_injection"},
    "extractive": {"extraction"},
    "harmful": {"harmful_request"},
}
MATCHED = "mt_"
MOST_TURNS = 24
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The readers' outputs for one record, the highest over its turns or its contents."""

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


def open_reader(thorough: bool) -> Callable[[Sequence[Case]], Sequence[Reading]]:
    """Return what reads cases in a process of its own."""
    return lambda cases: [read(case, thorough=thorough) for case in cases]


def read(case: Case, *, thorough: bool) -> Reading:
    """Read one record: its messages, its turns in their context, its contents."""
    readers, steps = shared_readers(), steps_of(case.messages)[-MOST_TURNS:]
    said = [step.turn.text for step in steps if step.turn.text]
    messages = readers.read_messages(said or [""], thorough=thorough)
    outputs = {name: max(getattr(r, name) for r in messages) for name in MESSAGE_OUTPUTS}
    if len(said) > 1:
        contexts = [
            readers.read_context(before, system=step.turn.system, thorough=thorough)
            for before, step in _turns(steps)
        ]
        outputs["turn"] = max(context.turn for context in contexts)
        # This output covers all turns so far, so that the last one is enough.
        outputs["session"] = contexts[-1].session
    orders = [
        reading.order
        for step in steps
        for reading in readers.read_documents(
            [content.text for content in step.turn.contents],
            task=step.turn.text,
            thorough=thorough,
        )
    ]
    return Reading(outputs=outputs | ({"document": max(orders)} if orders else {}))


def _turns(steps: Sequence[Step]) -> Iterator[tuple[tuple[Message, ...], Step]]:
    """Yield each turn with all that was said up to it."""
    said: list[Message] = []
    for step in steps:
        said.append(Message(role=Role.USER, content=step.turn.text))
        yield tuple(said), step
        if step.reply:
            said.append(Message(role=Role.ASSISTANT, content=step.reply))


def lost(_: Case) -> Reading:
    """A record that kills its process is a fault of ours: stop."""
    raise SystemExit("A record could not be read.")


def is_talk(case: Case) -> bool:
    """Say whether a record has more than one turn of the user's."""
    return sum(message.role is Role.USER for message in case.messages) > 1


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


def judged_of(cases: Sequence[Case], jobs: int, *, thorough: bool) -> list[tuple[Case, Reading]]:
    """Read all cases."""
    opener = partial(open_reader, thorough)
    return list(zip(cases, map_ordered(opener, cases, jobs=jobs, lost=lost), strict=True))


def rows_of(judged: Sequence[tuple[Case, Reading]]) -> list[Row]:
    """Return the lines on messages and conversations."""
    single = [(c, r) for c, r in judged if not is_talk(c)]
    multi = [(c, r) for c, r in judged if is_talk(c)]
    texts, message = summary(single, "attack"), summary(multi, "attack")
    turn, session = summary(multi, "turn"), summary(multi, "session")
    heads = (("riskiest turn", turn), ("session", session), ("highest message", message))
    return [
        whole("single texts", "attack", texts),
        *by_kind(single),
        *(one("sources", group) for group in texts.by_source),
        *(one("categories", group) for group in texts.by_category),
        *seed_names(single),
        *languages("languages", single),
        *(whole("conversations", name, found) for name, found in heads),
        *(
            one(f"matched, {name}", group)
            for name, found in heads
            for group in found.by_source
            if group.name.startswith(MATCHED)
        ),
    ]


def document_rows(judged: Sequence[tuple[Case, Reading]]) -> list[Row]:
    """Return the lines on tool results and documents, at the shipped threshold and by source."""
    found = summary([(c, r) for c, r in judged if "document" in r.outputs], "document")
    return [
        whole("documents", "order", found),
        *(one("documents, sources", group) for group in found.by_source),
        *(one("documents, languages", group) for group in found.by_language),
        *(one("documents, categories", group) for group in found.by_category),
    ]


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
    parser.add_argument("--per-source", type=int, help="Draw so many of each source and label.")
    parser.add_argument("--thorough", action="store_true", help="Ask both readers.")
    parser.add_argument("--publish", action="store_true", help="Write what is measured.")
    options = parser.parse_args()
    rows, samples = measured(options)
    print(markdown(rows))
    if options.publish:
        body = {
            "model": bundled().manifest.identity,
            "readers": "both" if options.thorough else "quick",
            "sample": samples,
            "rows": [asdict(row) for row in rows],
        }
        PUBLISHED.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def measured(options: argparse.Namespace) -> tuple[list[Row], dict[str, str]]:
    """Return every line of the tables, and how the cases of each file were drawn."""

    def judged(path: Path) -> list[tuple[Case, Reading]]:
        dataset = load_dataset([path], per_source=options.per_source, seed=SEED)
        samples[path.name] = dataset.sample or f"all {len(dataset.cases)} cases"
        return judged_of(dataset.cases, options.jobs, thorough=options.thorough)

    samples: dict[str, str] = {}
    rows = rows_of(judged(options.data / FILE)) + document_rows(judged(options.data / LAYERS))
    if options.held:
        single = [(case, reading) for case, reading in judged(options.held) if not is_talk(case)]
        rows += languages("languages, held-out training records", single)
    return rows, samples


if __name__ == "__main__":
    main()
