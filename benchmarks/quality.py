"""Measures the published numbers again: `python -m benchmarks.quality [DATA]`, `make validate`.

DATA is the folder with the test data, else the environment variable PROMPTGUARD_DATA: user
messages and conversations in one file, tool results and documents in the other. `--per-source 60`
draws at most so many of each source and label, always the same ones, which takes minutes. The
numbers in published.json (a validation report, which the quality page shows) are held against
what is measured now; a drop beyond a quarter of their interval fails. `--publish` writes what is
measured as the numbers to hold, `--report` the tables by source, language and signal.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from promptguard.config import ControllerConfig
from promptguard.errors import PromptGuardError
from promptguard.runs.rendering import report_as_markdown
from promptguard.runs.report import (
    Attribution,
    Headline,
    Mistakes,
    Report,
    Summary,
    read_report,
    report_to_json,
)
from promptguard.validation.contenders import Contender
from promptguard.validation.dataset import load_dataset
from promptguard.validation.report import report_of, summary_of
from promptguard.validation.runner import manifest_of, run_cases
from promptguard.workers import default_jobs

PUBLISHED = Path(__file__).parent / "published.json"
FILE, LAYERS = "public_test.jsonl.gz", "public_test_layers.jsonl.gz"
COMMAND = "python -m benchmarks.quality DATA"
SINGLES = "engine, single messages alone"
CONVERSATIONS = "engine, conversations alone"
DOCUMENTS = "engine, tool results and documents"
SEED = 0
LEAST_TOLERANCE = 0.002
SLACK = 0.25


def main() -> None:
    """Measure, compare, and fail where something dropped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, help="Folder with the test data.")
    parser.add_argument("--jobs", type=int, default=default_jobs())
    parser.add_argument("--per-source", type=int, help="Draw so many of each source and label.")
    parser.add_argument("--publish", action="store_true", help="Write what is measured.")
    parser.add_argument("--report", type=Path, help="Write the tables there, as Markdown.")
    options = parser.parse_args()
    try:
        sys.exit(run(options))
    except PromptGuardError as error:
        sys.exit(f"Error: {error}")


def run(options: argparse.Namespace) -> int:
    """Return the exit code: 0 where every number holds, 1 where one dropped or none is known."""
    now = measured(_folder(options.data), jobs=options.jobs, per_source=options.per_source)
    if options.report:
        options.report.write_text(report_as_markdown(now), encoding="utf-8")
    if options.publish:
        PUBLISHED.write_text(report_to_json(published_of(now)), encoding="utf-8")
    return compared(read_report(PUBLISHED), now)


def measured(folder: Path, *, jobs: int, per_source: int | None) -> Report:
    """Measure the engine on all cases, each kind of them alone, and on untrusted content."""
    contender = Contender(name="engine", settings=ControllerConfig())
    dataset = load_dataset([folder / FILE], per_source=per_source, seed=SEED)
    outcomes = run_cases(dataset.cases, (contender,), jobs=jobs, on_case=_progress)
    layers = load_dataset([folder / LAYERS], per_source=per_source, seed=SEED)
    documents = run_cases(layers.cases, (contender,), jobs=jobs, on_case=_progress)["engine"]
    print(file=sys.stderr)
    manifest = manifest_of(dataset, (contender,), seed=SEED)
    report = report_of(
        dataset,
        (contender,),
        outcomes,
        replace(
            manifest,
            files=(*dataset.files, *layers.files),
            sample="; ".join(note for note in (dataset.sample, layers.sample) if note),
        ),
        now=time.time(),
        seed=SEED,
        command=COMMAND if per_source is None else f"{COMMAND} --per-source {per_source}",
    )
    pairs = list(zip(dataset.cases, outcomes["engine"], strict=True))
    singles = [(case, outcome) for case, outcome in pairs if outcome.turns == 1]
    talks = [(case, outcome) for case, outcome in pairs if outcome.turns > 1]
    parts = (
        (SINGLES, [c for c, _ in singles], [o for _, o in singles]),
        (CONVERSATIONS, [c for c, _ in talks], [o for _, o in talks]),
        (DOCUMENTS, layers.cases, documents),
    )
    further = tuple(
        replace(summary_of(contender, cases, found, seed=SEED), name=name)
        for name, cases, found in parts
    )
    return replace(report, contenders=(*report.contenders, *further))


def published_of(report: Report) -> Report:
    """Return what is published of a report: no plots and no single records."""
    return replace(
        report,
        bad_lines=(),
        attribution=Attribution(),
        contenders=tuple(_published(summary) for summary in report.contenders),
    )


def compared(published: Report | None, now: Report) -> int:
    """Print both columns; return 1 where a number dropped or there is nothing to hold."""
    measured_now = dict(_held(now))
    if published is None:
        for (_, key), each in measured_now.items():
            print(f"{key:32} {each.measure.value:9.4f}")
        print("No numbers are published yet; --publish writes these.")
        return 1
    # A drop on other records would say nothing of the engine.
    if published.manifest.files != now.manifest.files or published.cases != now.cases:
        print("The published numbers are of other data; they cannot be held against these.")
        print(f"Published: {published.manifest.sample or 'all cases'}.")
        return 1
    dropped = 0
    for name, held in _held(published):
        found = measured_now.get(name)
        value = float("nan") if found is None else found.measure.value
        assert held.measure.value is not None
        assert value is not None
        is_dropped = found is None or _is_dropped(held, value)
        dropped += is_dropped
        verdict = "DROPPED" if is_dropped else "holds"
        print(
            f"{' '.join(name):64} published {held.measure.value:9.4f}  now {value:9.4f}  {verdict}"
        )
    return int(dropped > 0)


def tolerance(held: Headline) -> float:
    """Return how far a number may be worse: a quarter of its interval, and no less than noise."""
    low, high = held.measure.low or 0.0, held.measure.high or 0.0
    # These are counted per thousand; all other numbers are shares.
    scale = 1000 if held.key.endswith("per_1000") else 1
    return max(LEAST_TOLERANCE * scale, SLACK * (high - low))


def _is_dropped(held: Headline, now: float) -> bool:
    assert held.measure.value is not None
    worse = held.measure.value - now if held.higher_is_better else now - held.measure.value
    return worse > tolerance(held)


def _held(report: Report) -> Iterator[tuple[tuple[str, str], Headline]]:
    """Yield the numbers that have a better direction, by contender and key."""
    for summary in report.contenders:
        for each in summary.headline:
            if each.higher_is_better is not None and each.measure.value is not None:
                yield (summary.name, each.key), each


def _published(summary: Summary) -> Summary:
    return replace(
        summary,
        headline=tuple(each for each in summary.headline if each.higher_is_better is not None),
        roc=(),
        reliability=(),
        missed=Mistakes(),
        false_alarms=Mistakes(),
    )


def _folder(given: Path | None) -> Path:
    chosen = given or os.environ.get("PROMPTGUARD_DATA")
    if not chosen:
        sys.exit(f"Name the folder that holds {FILE} and {LAYERS}, or set PROMPTGUARD_DATA.")
    return Path(chosen)


def _progress(done: int) -> None:
    if sys.stderr.isatty() or done % 1000 == 0:
        print(f"\r{done} judged", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
