"""The measure of the rubric on labelled dialogues."""

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import rubric

AUTHORED = (
    Path(__file__).resolve().parents[2] / "training/corpus/rubric/false_presuppositions.jsonl"
)
TALK = [
    {"role": "user", "content": "Should schools teach chess?"},
    {"role": "assistant", "content": "Yes, schools should teach chess."},
    {"role": "user", "content": "It takes time from sports."},
    {"role": "assistant", "content": "You're right, schools shouldn't teach chess."},
]


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Twenty records of one source; all but the last are labelled contradictions."""
    path = tmp_path / "labelled.jsonl"
    labels = ["contradiction"] * 19 + ["consistent"]
    lines = [
        json.dumps(
            {"id": f"t-{at}", "source": "own", "lang": "en", "label": label, "messages": TALK}
        )
        for at, label in enumerate(labels)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def measured(path: Path, capsys, monkeypatch, *options: str) -> dict[str, float]:
    """Run the command and return the measures of the one source."""
    monkeypatch.setattr("sys.argv", ["rubric", str(path), "--json", *options])
    rubric.main()
    (found,) = json.loads(capsys.readouterr().out)
    return found


def test_flags_are_counted_against_the_labels(labelled, capsys, monkeypatch) -> None:
    """Precision is over what was flagged, recall over what is labelled."""
    found = measured(labelled, capsys, monkeypatch)
    assert (found["n"], found["flagged"]) == (20, 20)
    assert found["precision"] == pytest.approx(0.95)
    assert found["recall"] == 1


def test_the_table_has_a_line_for_each_source(labelled, capsys, monkeypatch) -> None:
    """As the page shows it."""
    monkeypatch.setattr("sys.argv", ["rubric", str(labelled)])
    rubric.main()
    heading, _, line = capsys.readouterr().out.splitlines()
    assert heading.count("|") == line.count("|")
    assert "| own (en) | 20 | 95% | 20 | 0.95" in line


def test_the_halves_share_no_record_and_leave_none_out(labelled, capsys, monkeypatch) -> None:
    """Each record is in the same half on every run."""
    halves = [measured(labelled, capsys, monkeypatch, "--half", half) for half in "AB"]
    assert sum(half["n"] for half in halves) == 20
    assert all(half["n"] for half in halves)


def test_the_authored_dialogues_are_of_one_form() -> None:
    """Each kind has twenty of five exchanges; two kinds of the seven are contradictions."""
    found = list(rubric.records([AUTHORED]))
    kinds = Counter((record["category"], record["label"]) for record in found)
    assert set(kinds.values()) == {20}
    assert [label for _, label in kinds].count("contradiction") == 2
    assert {len(record["messages"]) for record in found} == {10}
