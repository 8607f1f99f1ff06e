"""Labelled data is checked, and whatever is not used is counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from promptguard.errors import DataError
from promptguard.records import FieldMap
from promptguard.validation.dataset import Dataset, load_dataset


def row(label: str, **fields: Any) -> str:
    said = [{"role": "user", "content": str(n)} for n in range(3)]
    return json.dumps({"id": label, "messages": said, "label": label} | fields)


def load(tmp_path: Path, *lines: str, **options: Any) -> Dataset:
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return load_dataset([path], **options)


def test_labels_become_sides(tmp_path: Path) -> None:
    """Both vocabularies are understood; borderline records are skipped and counted."""
    names = ("attack", "benign", "reciprocal", "extractive", "manipulative", "borderline")
    found = load(tmp_path, *map(row, names))
    assert [case.is_attack for case in found.cases] == [True, False, False, True, True]
    assert [case.index for case in found.cases] == [0, 1, 2, 3, 4]
    assert found.skipped == 1
    assert found.files[0].name == "d.jsonl"
    assert len(found.files[0].sha256) == 64


def test_bad_lines_are_listed_by_number(tmp_path: Path) -> None:
    """An unknown label and a broken line are faults, and the rest is used."""
    found = load(tmp_path, row("attack"), row("evil"), "{", row("benign"))
    assert [fault.number for fault in found.faults] == [2, 3]
    assert len(found.cases) == 2


def test_reading_stops_at_a_bad_line_where_asked(tmp_path: Path) -> None:
    """The error names file and line."""
    with pytest.raises(DataError, match=r"d\.jsonl, line 2"):
        load(tmp_path, row("attack"), "{", on_fault="stop")


@pytest.mark.parametrize(
    ("turns_from", "given", "turn"), [(0, 0, 1), (0, 2, 3), (1, 1, 1), (1, 3, 3)]
)
def test_attack_turns_count_from_one_inside(
    tmp_path: Path, turns_from: int, given: int, turn: int
) -> None:
    """Data may count user turns from 0 or from 1."""
    (case,) = load(tmp_path, row("attack", attack_turn=given), turns_from=turns_from).cases
    assert case.attack_turn == turn


@pytest.mark.parametrize(("users", "turn"), [(2, 2), (0, 1)])
def test_tool_results_before_all_words_count_as_a_turn(
    tmp_path: Path, users: int, turn: int
) -> None:
    """They are judged as one, and a block of the turn after them is on time."""
    said = [{"role": "tool", "content": "a"}] * 2 + [{"role": "user", "content": "b"}] * users
    (case,) = load(tmp_path, row("attack", messages=said, attack_turn=0)).cases
    assert case.attack_turn == turn


@pytest.mark.parametrize("given", [-1, 3, "soon", 1e400, 0.7, -0.5])
def test_an_impossible_attack_turn_is_a_fault(tmp_path: Path, given: object) -> None:
    """A turn that was never spoken cannot be the first open one."""
    found = load(tmp_path, row("attack", attack_turn=given))
    assert not found.cases
    assert len(found.faults) == 1


def test_a_fault_names_the_turns_there_are(tmp_path: Path) -> None:
    """Tool results without words are one turn."""
    said = [{"role": "tool", "content": "a"}]
    (fault,) = load(tmp_path, row("attack", messages=said, attack_turn=5)).faults
    assert "from 0 to 0." in fault.reason


def test_a_sample_is_seeded_and_keeps_the_order(tmp_path: Path) -> None:
    """The same seed draws the same cases."""
    lines = [row("benign", id=n) for n in range(50)]
    first, second = (load(tmp_path, *lines, sample=10, seed=4).cases for _ in range(2))
    other = load(tmp_path, *lines, sample=10, seed=5).cases
    assert first == second != other
    assert [case.index for case in first] == sorted(case.index for case in first)


def test_labels_can_be_translated(tmp_path: Path) -> None:
    """Other spellings are mapped by the caller."""
    fields = FieldMap.parse(["label=is_bad"], ["1=attack"])
    (case,) = load(tmp_path, row("x", is_bad=1), fields=fields).cases
    assert case.is_attack


def test_a_draw_per_source_is_fixed_and_named(tmp_path: Path) -> None:
    """At most so many of each source and label, the same each time, and the data set says so."""
    rows = [
        {"id": n, "text": "hi", "label": "attack" if n % 2 else "benign", "source": f"s{n % 3}"}
        for n in range(60)
    ]
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    first, again = (load_dataset([path], per_source=4, seed=1) for _ in range(2))
    assert first == again
    counts = Counter((case.source, case.is_attack) for case in first.cases)
    assert set(counts.values()) == {4}
    assert len(counts) == 6
    assert [case.index for case in first.cases] == sorted(case.index for case in first.cases)
    assert first.sample == ("24 of 60 cases, at most 4 of each source and label, drawn with seed 1")
    assert load_dataset([path], per_source=100).sample == ""
    fewer = tmp_path / "fewer.jsonl"
    kept = [json.dumps(row) for row in rows if row["source"] != "s2"]
    fewer.write_text("\n".join(kept), encoding="utf-8")
    without = {case.id for case in load_dataset([fewer], per_source=4, seed=1).cases}
    assert without == {case.id for case in first.cases if case.source != "s2"}
