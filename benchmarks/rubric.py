"""Measures the self-contradiction rubric on labelled dialogues.

python -m benchmarks.rubric FILE.jsonl[.gz]... [--source NAME] [--half A|B] [--semantic]
                            [--rules-only | --model FOLDER] [--json]

Each line holds `id`, `messages`, `source`, `lang` and a `label`: `contradiction`, or anything else
for dialogues without one. A half is chosen by a hash of the id: rules are written on A.

The rules are measured alone and, where the model reads pairs of answers, with its reader. `--json`
then also says what each threshold would give: choose one on files that may be looked at.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.halves import add_half, half_of
from promptguard.model.artifact import open_artifact
from promptguard.model.readers import Readers, shared_readers
from promptguard.rubrics.comparison import SameQuestion
from promptguard.rubrics.contradiction import RubricVerdict, judge_contradiction
from promptguard.rubrics.reversal import ReversalReader, reverses_by
from promptguard.rubrics.similarity import same_question_by
from promptguard.runs.intervals import wilson

RULES, BOTH = "rules", "rules and reader"
# Closer together at the end, where a threshold for a high precision lies.
THRESHOLDS = (*(at / 20 for at in range(1, 20)), 0.96, 0.97, 0.98, 0.99, 0.995)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one dialogue by the rules, and with the reader where it was asked.

    `probability` is the reader's of its surest reversal that nothing acknowledges; None where
    there is none, and where the rules have found one before.
    """

    is_labelled: bool
    rules: RubricVerdict
    both: RubricVerdict | None = None
    probability: float | None = None

    def is_flagged(self, threshold: float) -> bool:
        """Say whether rules and reader would flag it, if the reader counted from `threshold`."""
        is_read = self.probability is not None and self.probability >= threshold
        return is_read or self.rules is RubricVerdict.CONTRADICTION


@dataclass(frozen=True, slots=True, kw_only=True)
class AtThreshold:
    """What rules and reader flag where the reader counts from one threshold."""

    threshold: float
    flagged: int
    right: int
    precision: float
    precision_low: float
    precision_high: float
    recall: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How the rubric did on one source; the sweep is over the reader's thresholds."""

    source: str
    judged_by: str
    n: int
    flagged: int
    precision: float
    precision_low: float
    precision_high: float
    recall: float
    base_rate: float
    hints: int
    hints_right: int
    unclear: float
    acknowledged: float
    clear: int
    accuracy_where_clear: float
    sweep: tuple[AtThreshold, ...] = ()


def records(paths: list[Path]) -> Iterator[dict[str, object]]:
    """Yield every record of the files."""
    for path in paths:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def outcome_of(
    record: dict[str, object],
    *,
    same_question: SameQuestion | None = None,
    reader: ReversalReader | None = None,
) -> Outcome:
    """Judge one record by the rules, and with the reader."""
    messages, is_labelled = record["messages"], record["label"] == "contradiction"
    ruled = judge_contradiction(messages, same_question=same_question)
    if reader is None:
        return Outcome(is_labelled=is_labelled, rules=ruled.verdict)
    both = judge_contradiction(messages, same_question=same_question, reverses=reader)
    # The readings are remembered from the line before; here every one of them counts.
    surest = judge_contradiction(
        messages, same_question=same_question, reverses=replace(reader, counts_from=0.0)
    )
    return Outcome(
        is_labelled=is_labelled,
        rules=ruled.verdict,
        both=both.verdict,
        probability=surest.probability if surest.is_contradiction else None,
    )


def measures_of(source: str, outcomes: Sequence[Outcome]) -> Iterator[Measure]:
    """Yield the measures of one source: of the rules, and of both where the reader was asked."""
    yield measure(source, RULES, [(each.rules, each.is_labelled) for each in outcomes])
    both = [(each.both, each.is_labelled) for each in outcomes if each.both is not None]
    if both:
        sweep = tuple(at_threshold(outcomes, threshold) for threshold in THRESHOLDS)
        yield replace(measure(source, BOTH, both), sweep=sweep)


def at_threshold(outcomes: Sequence[Outcome], threshold: float) -> AtThreshold:
    """Return what rules and reader flag if the reader counts from `threshold`."""
    flagged = [each.is_labelled for each in outcomes if each.is_flagged(threshold)]
    labelled = sum(each.is_labelled for each in outcomes)
    low, high = wilson(sum(flagged), len(flagged))
    return AtThreshold(
        threshold=threshold,
        flagged=len(flagged),
        right=sum(flagged),
        precision=sum(flagged) / len(flagged) if flagged else math.nan,
        precision_low=low,
        precision_high=high,
        recall=sum(flagged) / labelled if labelled else math.nan,
    )


def reader_of(folder: Path | None) -> ReversalReader | None:
    """Return the reader of answers of the model in `folder`, or of the bundled one, if any."""
    readers = shared_readers() if folder is None else Readers(open_artifact(folder))
    if not readers.has_reversal:
        return None
    # A reader whose threshold is still to be chosen flags nothing itself, and is swept.
    unfitted = ReversalReader(read=readers.read_answers, counts_from=math.inf, hints_from=math.inf)
    return reverses_by(readers) or unfitted


def measure(source: str, judged_by: str, outcomes: Sequence[tuple[RubricVerdict, bool]]) -> Measure:
    """Return the measures of one source from (verdict, is labelled contradiction)."""
    n = len(outcomes)
    counts = Counter(verdict for verdict, _ in outcomes)
    flagged = counts[RubricVerdict.CONTRADICTION]
    hits = sum(is_one for verdict, is_one in outcomes if verdict is RubricVerdict.CONTRADICTION)
    labelled = sum(is_one for _, is_one in outcomes)
    clear = [(v, y) for v, y in outcomes if v is not RubricVerdict.UNCLEAR]
    right = sum((v is not RubricVerdict.CONSISTENT) == y for v, y in clear)
    # So few are flagged that a share without its interval would mislead.
    low, high = wilson(hits, flagged)
    return Measure(
        source=source,
        judged_by=judged_by,
        n=n,
        flagged=flagged,
        precision=hits / flagged if flagged else math.nan,
        precision_low=low,
        precision_high=high,
        recall=hits / labelled if labelled else math.nan,
        base_rate=labelled / n,
        hints=counts[RubricVerdict.HINT],
        hints_right=sum(is_one for verdict, is_one in outcomes if verdict is RubricVerdict.HINT),
        unclear=counts[RubricVerdict.UNCLEAR] / n,
        acknowledged=counts[RubricVerdict.ACKNOWLEDGED] / n,
        clear=len(clear),
        accuracy_where_clear=right / len(clear) if clear else math.nan,
    )


def main() -> None:
    """Run on the files named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--source", action="append", help="Only this source; repeatable.")
    add_half(parser)
    parser.add_argument("--semantic", action="store_true", help="Compare by embeddings.")
    readers = parser.add_mutually_exclusive_group()
    readers.add_argument("--rules-only", action="store_true", help="Ask no reader of answers.")
    readers.add_argument(
        "--model", type=Path, help="The folder of the model whose reader is asked."
    )
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    same_question = same_question_by(shared_readers().embed) if options.semantic else None
    reader = None if options.rules_only else reader_of(options.model)
    outcomes: dict[str, list[Outcome]] = {}
    for record in records(options.files):
        source = f"{record['source']} ({record['lang']})"
        if options.source and record["source"] not in options.source:
            continue
        if options.half and half_of(record["id"], byte=-1) != options.half:
            continue
        outcome = outcome_of(record, same_question=same_question, reader=reader)
        outcomes.setdefault(source, []).append(outcome)
    measures = [
        each for source in sorted(outcomes) for each in measures_of(source, outcomes[source])
    ]
    if options.as_json:
        print(json.dumps([asdict(item) for item in measures], indent=2))
        return
    show(measures)


def show(measures: Sequence[Measure]) -> None:
    """Print the table of the page."""
    print(
        "| source | judged by | n | contradictions | flagged | precision (95 %) | recall "
        "| hints | right | unclear |"
    )
    print("|---|---|--:|--:|--:|---|--:|--:|--:|--:|")
    for item in measures:
        print(
            f"| {item.source} | {item.judged_by} | {item.n} | {item.base_rate:.0%} "
            f"| {item.flagged} | {item.precision:.2f} "
            f"({item.precision_low:.2f}-{item.precision_high:.2f}) | {item.recall:.3f} "
            f"| {item.hints} | {item.hints_right} | {item.unclear:.0%} |"
        )


if __name__ == "__main__":
    main()
