"""Measures the published numbers again: `python -m benchmarks.quality [DATA]`, `make validate`.

DATA is the folder with the test data, else the environment variable PROMPTGUARD_DATA. The
numbers in published.json are held against what is measured now; a drop beyond their tolerance
fails. `--publish` writes what is measured as the numbers to hold, `--report` the tables by source,
language and signal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from promptguard.config import ControllerConfig
from promptguard.errors import PromptGuardError
from promptguard.validation.contenders import Contender
from promptguard.validation.dataset import DataFile, Dataset, load_dataset
from promptguard.validation.intervals import Measure
from promptguard.validation.manifest import Manifest, manifest_of
from promptguard.validation.markdown import markdown_of
from promptguard.validation.report import report_of
from promptguard.validation.runner import run_cases
from promptguard.validation.summary import Summary, summary_of
from promptguard.workers import default_jobs

PUBLISHED = Path(__file__).parent / "published.json"
FILE = "public_test.jsonl.gz"
SEED = 0
LEAST_TOLERANCE = 0.002
SLACK = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A published number; a change for the worse by more than `tolerance` is a drop."""

    name: str
    value: float
    low: float
    high: float
    tolerance: float
    higher_is_better: bool = True

    def is_dropped(self, now: float) -> bool:
        """Say whether `now` is worse beyond the tolerance."""
        worse = self.value - now if self.higher_is_better else now - self.value
        return worse > self.tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The numbers, and the data and model they were measured with."""

    file: DataFile
    cases: int
    model: str
    weights: str
    numbers: tuple[Number, ...]


def main() -> None:
    """Measure, compare, and fail where something dropped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, help="Folder with the test data.")
    parser.add_argument("--jobs", type=int, default=default_jobs())
    parser.add_argument("--sample", type=int, help="Draw so many cases.")
    parser.add_argument("--publish", action="store_true", help="Write what is measured.")
    parser.add_argument("--report", type=Path, help="Write the tables there, as Markdown.")
    options = parser.parse_args()
    try:
        sys.exit(run(options))
    except PromptGuardError as error:
        sys.exit(f"Error: {error}")


def run(options: argparse.Namespace) -> int:
    """Return the exit code: 0 where every number holds, 1 where one dropped or none is known."""
    dataset = load_dataset([_folder(options.data) / FILE], sample=options.sample, seed=SEED)
    contender = Contender(name="engine", settings=ControllerConfig())
    outcomes = run_cases(dataset.cases, (contender,), jobs=options.jobs, on_case=_progress)
    print(file=sys.stderr)
    manifest = manifest_of(dataset, (contender,), seed=SEED)
    report = report_of(dataset, (contender,), outcomes, manifest, now=time.time(), seed=SEED)
    talks = [
        (case, outcome)
        for case, outcome in zip(dataset.cases, outcomes["engine"], strict=True)
        if outcome.turns > 1
    ]
    apart = summary_of(contender, [c for c, _ in talks], [o for _, o in talks], seed=SEED)
    now = numbers_of(report.contenders[0], apart)
    if options.report:
        options.report.write_text(markdown_of(report), encoding="utf-8")
    if options.publish:
        write(published_of(now, dataset, manifest), PUBLISHED)
    return compared(read(PUBLISHED), now, dataset)


def numbers_of(summary: Summary, apart: Summary) -> tuple[Number, ...]:
    """Return the numbers that are published of the engine; `apart` is of conversations alone."""
    macro, talks = summary.macro, summary.dialogues
    found = (
        ("auc", macro.auc, True),
        ("recall_at_1", macro.recall_at_1, True),
        ("recall_at_5", macro.recall_at_5, True),
        ("auc_within", macro.auc_within, True),
        ("recall", macro.recall, True),
        ("false_positive_rate", macro.false_positive_rate, False),
        ("over_defence_accuracy", summary.overall.over_defence_accuracy, True),
        ("dialogue_auc", apart.macro.auc, True),
        ("dialogue_recall_at_5", apart.macro.recall_at_5, True),
        ("dialogue_auc_within", apart.macro.auc_within, True),
        ("dialogue_detection_rate", talks.detection_rate, True),
        ("dialogue_false_alarms_per_1000", talks.false_alarms_per_1000, False),
    )
    return tuple(
        _number(name, measure, is_higher)
        for name, measure, is_higher in found
        if measure.value is not None
    )


def _number(name: str, found: Measure, higher_is_better: bool) -> Number:
    assert found.value is not None
    low = found.value if found.low is None else found.low
    high = found.value if found.high is None else found.high
    scale = 1000 if name.endswith("per_1000") else 1
    return Number(
        name=name,
        value=round(found.value, 4),
        low=round(low, 4),
        high=round(high, 4),
        tolerance=round(max(LEAST_TOLERANCE * scale, SLACK * (high - low)), 4),
        higher_is_better=higher_is_better,
    )


def compared(published: Published | None, now: Sequence[Number], dataset: Dataset) -> int:
    """Print both columns; return 1 where a number dropped or there is nothing to hold."""
    if published is None:
        for number in now:
            print(f"{number.name:32} {number.value:9.4f}")
        print("No numbers are published yet; --publish writes these.")
        return 1
    if published.file not in dataset.files or published.cases != len(dataset.cases):
        print("The published numbers are of other data; they cannot be held against these.")
        return 1
    measured = {number.name: number.value for number in now}
    dropped = 0
    for number in published.numbers:
        value = measured.get(number.name, float("nan"))
        is_dropped = number.name not in measured or number.is_dropped(value)
        dropped += is_dropped
        verdict = "DROPPED" if is_dropped else "holds"
        print(f"{number.name:32} published {number.value:9.4f}  now {value:9.4f}  {verdict}")
    return int(dropped > 0)


def published_of(now: Sequence[Number], dataset: Dataset, manifest: Manifest) -> Published:
    """Return the numbers with what they were measured on."""
    return Published(
        file=dataset.files[0],
        cases=len(dataset.cases),
        model=manifest.model,
        weights=manifest.contenders[0].weights,
        numbers=tuple(now),
    )


def write(published: Published, path: Path) -> None:
    """Write the file of published numbers."""
    path.write_text(json.dumps(asdict(published), indent=2) + "\n", encoding="utf-8")


def read(path: Path) -> Published | None:
    """Read the published numbers; None where there are none."""
    if not path.exists():
        return None
    body = json.loads(path.read_text(encoding="utf-8"))
    return Published(
        file=DataFile(**body["file"]),
        cases=body["cases"],
        model=body["model"],
        weights=body["weights"],
        numbers=tuple(Number(**number) for number in body["numbers"]),
    )


def _folder(given: Path | None) -> Path:
    chosen = given or os.environ.get("PROMPTGUARD_DATA")
    if not chosen:
        sys.exit(f"Name the folder that holds {FILE}, or set PROMPTGUARD_DATA.")
    return Path(chosen)


def _progress(done: int) -> None:
    if sys.stderr.isatty() or done % 1000 == 0:
        print(f"\r{done} judged", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
