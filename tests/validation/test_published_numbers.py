"""Published numbers are held; a drop beyond noise is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.quality import PUBLISHED, compared, published_of
from promptguard.model.artifact import bundled
from promptguard.runs.intervals import Measure
from promptguard.runs.report import (
    DataFile,
    Headline,
    Manifest,
    Mistake,
    Mistakes,
    Report,
    Summary,
    read_report,
    report_to_json,
)

FILE = DataFile(name="t.jsonl", sha256="00")


def number(name: str, value: float, *, higher: bool = True) -> Headline:
    """Return a number that may be worse by 0.01."""
    measure = Measure(value=value, low=value - 0.02, high=value + 0.02)
    return Headline(key=name, label=name, measure=measure, higher_is_better=higher)


def report(*numbers: Headline, sha256: str = "00") -> Report:
    missed = Mistakes(count=1, listed=(Mistake(id=1, source="s", category="c"),))
    return Report(
        created=1.0,
        cases=4,
        manifest=Manifest(files=(DataFile(name="t.jsonl", sha256=sha256),)),
        contenders=(Summary(name="engine", judged=4, failed=0, headline=numbers, missed=missed),),
    )


@pytest.mark.parametrize(("now", "code"), [(0.80, 0), (0.795, 0), (0.90, 0), (0.78, 1)])
def test_a_drop_beyond_the_tolerance_fails(now: float, code: int) -> None:
    """A rise never fails, a small drop does not, a large one does."""
    assert compared(report(number("auc", 0.80)), report(number("auc", now))) == code


def test_less_can_be_better() -> None:
    """More false alarms are a drop."""
    held = report(number("alarms", 0.02, higher=False))
    assert compared(held, report(number("alarms", 0.05, higher=False))) == 1
    assert compared(held, report(number("alarms", 0.01, higher=False))) == 0


def test_a_number_that_is_gone_is_a_drop() -> None:
    """What is not measured any more does not hold."""
    assert compared(report(number("auc", 0.8)), report()) == 1


def test_other_data_cannot_be_compared() -> None:
    """The file's hash decides, not its name."""
    now = report(number("auc", 0.8), sha256="01")
    assert compared(report(number("auc", 0.8)), now) == 1


def test_nothing_published_does_not_hold() -> None:
    """The first run says so and fails."""
    assert compared(None, report(number("auc", 0.8))) == 1


def test_what_is_published_is_a_report_without_single_records(tmp_path: Path) -> None:
    """It comes back as it was written, and the quality page can read it."""
    path = tmp_path / "p.json"
    published = published_of(report(number("auc", 0.8)))
    path.write_text(report_to_json(published), encoding="utf-8")
    assert read_report(path) == published
    assert not published.contenders[0].missed.listed


def test_the_published_file_is_a_report() -> None:
    """A fresh clone's quality page has something to show, and so has `promptguard model info`."""
    published = read_report(PUBLISHED)
    assert published is not None
    assert {each.key for each in published.contenders[0].headline} >= {"auc", "recall"}
    assert read_report(bundled().folder / "measured.json") == published
