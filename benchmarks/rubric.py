"""Measures the self-contradiction rubric on labelled dialogues.

python -m benchmarks.rubric FILE.jsonl[.gz]... [--source NAME] [--half A|B] [--semantic] [--json]

Each line holds `id`, `messages`, `source`, `lang` and a `label`: `contradiction`, or anything else
for dialogues without one; the texts of `training/corpus/rubric` are read as they are. A half is
chosen by a hash of the id: rules are written on A.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.halves import add_half, half_of
from benchmarks.rubric_texts import dialogues
from promptguard.model.readers import shared_readers
from promptguard.rubrics.contradiction import RubricVerdict, judge_contradiction
from promptguard.rubrics.similarity import same_question_by
from promptguard.runs.intervals import wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How the rubric did on one source."""

    source: str
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


def records(paths: list[Path]) -> Iterator[dict[str, object]]:
    """Yield every dialogue of the files."""
    for path in paths:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield from dialogues(json.loads(line), path)


def measure(source: str, outcomes: Sequence[tuple[RubricVerdict, bool]]) -> Measure:
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
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    same_question = same_question_by(shared_readers().embed) if options.semantic else None
    outcomes: dict[str, list[tuple[RubricVerdict, bool]]] = {}
    for record in records(options.files):
        source = f"{record['source']} ({record['lang']})"
        if options.source and record["source"] not in options.source:
            continue
        if options.half and half_of(record["id"], byte=-1) != options.half:
            continue
        verdict = judge_contradiction(record["messages"], same_question=same_question).verdict
        outcomes.setdefault(source, []).append((verdict, record["label"] == "contradiction"))
    measures = [measure(source, outcomes[source]) for source in sorted(outcomes)]
    if options.as_json:
        print(json.dumps([asdict(item) for item in measures], indent=2))
        return
    show(measures)


def show(measures: Sequence[Measure]) -> None:
    """Print the table of the page."""
    print(
        "| source | n | contradictions | flagged | precision (95 %) | recall | hints | right "
        "| unclear |"
    )
    print("|---|--:|--:|--:|---|--:|--:|--:|--:|")
    for item in measures:
        print(
            f"| {item.source} | {item.n} | {item.base_rate:.0%} | {item.flagged} "
            f"| {item.precision:.2f} ({item.precision_low:.2f}-{item.precision_high:.2f}) "
            f"| {item.recall:.3f} | {item.hints} | {item.hints_right} | {item.unclear:.0%} |"
        )


if __name__ == "__main__":
    main()
