"""The measure of the rubric on labelled dialogues."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fake_answers import FakeAnswers
from tiny_model import write_reversal_model

from benchmarks import rubric
from promptguard.conversation import AnswerPair

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


def labelled_talks(path: Path, *talks: tuple[str, str]) -> Path:
    """Write a record for each (later answer, label); the rules leave all of them unclear."""
    lines = [
        json.dumps(
            {
                "id": f"r-{at}",
                "source": "own",
                "lang": "en",
                "label": label,
                "messages": [
                    {"role": "user", "content": "Which port?"},
                    {"role": "assistant", "content": "The port is 80."},
                    {"role": "user", "content": "Sure?"},
                    {"role": "assistant", "content": later},
                ],
            }
        )
        for at, (later, label) in enumerate(talks)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def shifting(tmp_path: Path) -> Path:
    """Four talks about which the reader of `sure_of` is sure to four degrees; one is labelled."""
    labels = [("0.95", "contradiction"), ("0.85", "consistent"), ("0.6", "consistent")]
    admitted = ("I was wrong. 0.99", "consistent")
    return labelled_talks(tmp_path / "shifting.jsonl", *labels, admitted)


def sure_of(pair: AnswerPair) -> float:
    return float(pair.later.split()[-1])


def rows_of(path: Path, capsys, monkeypatch, *options: str) -> list[dict[str, Any]]:
    """Run the command and return its rows."""
    monkeypatch.setattr("sys.argv", ["rubric", str(path), "--json", *options])
    rubric.main()
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_the_rules_are_measured_alone_and_with_the_reader(shifting, capsys, monkeypatch) -> None:
    """The reader counts from its own threshold; an acknowledged change is no flag."""
    monkeypatch.setattr(rubric, "shared_readers", lambda: FakeAnswers(sure_of))
    rules, both = rows_of(shifting, capsys, monkeypatch)
    assert (rules["judged_by"], both["judged_by"]) == ("rules", "rules and reader")
    assert (rules["flagged"], rules["sweep"]) == (0, [])
    assert (both["flagged"], both["hints"], both["acknowledged"]) == (2, 1, 0.25)
    assert (both["precision"], both["recall"]) == (0.5, 1.0)


def test_the_sweep_says_what_each_threshold_would_give(shifting, capsys, monkeypatch) -> None:
    """Fewer are flagged from each threshold to the next, and at the reader's own as many."""
    monkeypatch.setattr(rubric, "shared_readers", lambda: FakeAnswers(sure_of))
    _, both = rows_of(shifting, capsys, monkeypatch)
    at = {row["threshold"]: row for row in both["sweep"]}
    assert [at[threshold]["flagged"] for threshold in (0.05, 0.6, 0.8, 0.9, 0.99)] == [
        3,
        3,
        both["flagged"],
        1,
        0,
    ]
    assert (at[0.9]["right"], at[0.9]["precision"], at[0.9]["recall"]) == (1, 1.0, 1.0)


def test_what_the_rules_flag_is_flagged_at_every_threshold(labelled, capsys, monkeypatch) -> None:
    """The reader can only add to it."""
    monkeypatch.setattr(rubric, "shared_readers", lambda: FakeAnswers(lambda _: 0.0))
    _, both = rows_of(labelled, capsys, monkeypatch)
    assert {row["flagged"] for row in both["sweep"]} == {20}


def test_a_reader_without_a_threshold_is_swept_and_flags_nothing(
    shifting, capsys, monkeypatch
) -> None:
    """So that one can be chosen for it."""
    reader = FakeAnswers(sure_of, thresholds={})
    monkeypatch.setattr(rubric, "shared_readers", lambda: reader)
    _, both = rows_of(shifting, capsys, monkeypatch)
    assert (both["flagged"], both["hints"]) == (0, 0)
    assert both["sweep"][0]["flagged"] == 3


def test_rules_only_asks_no_reader(shifting, capsys, monkeypatch) -> None:
    """Nor does a model that has none."""
    reader = FakeAnswers(sure_of)
    monkeypatch.setattr(rubric, "shared_readers", lambda: reader)
    assert len(rows_of(shifting, capsys, monkeypatch, "--rules-only")) == 1
    reader.has_reversal = False
    assert len(rows_of(shifting, capsys, monkeypatch)) == 1
    assert not reader.asked


def test_the_reader_of_a_folder_is_measured(shifting, capsys, monkeypatch, tmp_path) -> None:
    """A model that does not ship yet; the tiny one knows no word of these."""
    write_reversal_model(tmp_path / "model")
    _, both = rows_of(shifting, capsys, monkeypatch, "--model", str(tmp_path / "model"))
    assert (both["flagged"], both["n"]) == (0, 4)


def test_the_table_has_a_line_for_each_judge(shifting, capsys, monkeypatch) -> None:
    """As the page shows it."""
    monkeypatch.setattr(rubric, "shared_readers", lambda: FakeAnswers(sure_of))
    monkeypatch.setattr("sys.argv", ["rubric", str(shifting)])
    rubric.main()
    heading, _, rules, both = capsys.readouterr().out.splitlines()
    assert heading.count("|") == rules.count("|") == both.count("|")
    assert "| rules and reader | 4 | 25% | 2 | 0.50" in both


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
