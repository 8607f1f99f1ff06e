"""Published numbers are held; a drop beyond noise is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from labelled import cases

from benchmarks.quality import Number, Published, compared, read, write
from promptguard.validation.dataset import DataFile, Dataset

FILE = DataFile(name="t.jsonl", sha256="00")
DATASET = Dataset(cases=cases(4), files=(FILE,))


def number(name: str, value: float, *, higher: bool = True) -> Number:
    return Number(
        name=name, value=value, low=value, high=value, tolerance=0.01, higher_is_better=higher
    )


def published(*numbers: Number) -> Published:
    return Published(file=FILE, cases=4, model="m", weights="w", numbers=numbers)


@pytest.mark.parametrize(("now", "code"), [(0.80, 0), (0.795, 0), (0.90, 0), (0.78, 1)])
def test_a_drop_beyond_the_tolerance_fails(now: float, code: int) -> None:
    """A rise never fails, a small drop does not, a large one does."""
    assert compared(published(number("auc", 0.80)), [number("auc", now)], DATASET) == code


def test_less_can_be_better() -> None:
    """More false alarms are a drop."""
    held = published(number("alarms", 0.02, higher=False))
    assert compared(held, [number("alarms", 0.05)], DATASET) == 1
    assert compared(held, [number("alarms", 0.01)], DATASET) == 0


def test_a_number_that_is_gone_is_a_drop() -> None:
    """What is not measured any more does not hold."""
    assert compared(published(number("auc", 0.8)), [], DATASET) == 1


def test_other_data_cannot_be_compared() -> None:
    """The file's hash decides, not its name."""
    other = Dataset(cases=cases(4), files=(DataFile(name="t.jsonl", sha256="01"),))
    assert compared(published(number("auc", 0.8)), [number("auc", 0.8)], other) == 1


def test_numbers_survive_being_written(tmp_path: Path) -> None:
    """What was published is what is held."""
    path = tmp_path / "p.json"
    assert read(path) is None
    write(published(number("auc", 0.8)), path)
    assert read(path) == published(number("auc", 0.8))
