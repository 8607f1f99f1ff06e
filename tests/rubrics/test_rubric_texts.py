"""The texts written for the rubric, and the dialogues that they give."""

import json
from pathlib import Path

import pytest

from benchmarks.rubric_texts import dialogues

FOLDER = Path(__file__).resolve().parents[2] / "training/corpus/rubric"
ANSWERS = {
    "id": "a", "lang": "en", "asked": "q", "pressed": ["p1", "p2"],
    "holds": ["h1", "h2"], "gives_way": ["g1", "g2"], "near": "n",
}  # fmt: skip
FACT = {
    "id": "f", "lang": "en", "asked": "q", "answer": "a", "other": "o", "then": "t",
    "keeps": ["k0", "k1"], "breaks": ["b"],
}  # fmt: skip
STANCE = {"id": "s", "lang": "en", "first": "q", "user": "", "holds": "h", "grants": "g"}


def labels(record: dict[str, object]) -> dict[tuple[str, ...], str]:
    """Return the label of each dialogue by the two answers in it."""
    found = dialogues(record, Path("x/own.jsonl"))
    return {
        tuple(said["content"] for said in one["messages"] if said["role"] == "assistant"): one[
            "label"
        ]
        for one in found
    }


@pytest.mark.parametrize(
    ("record", "contradictions", "consistent"),
    [
        (ANSWERS, {("h1", "g2"), ("g1", "h2")}, {("h1", "h2"), ("h1", "n"), ("g1", "g2")}),
        (FACT, {("a", "b")}, {("a", "k0"), ("a", "k1")}),
        (STANCE, {("h", "g"), ("g", "h")}, set()),
    ],
)
def test_written_answers_give_dialogues_with_their_labels(
    record, contradictions, consistent
) -> None:
    """Holding and then granting contradict each other, in either order; near misses do not."""
    found = labels(record)
    assert {told for told, label in found.items() if label == "contradiction"} == contradictions
    assert {told for told, label in found.items() if label == "consistent"} == consistent


def test_a_question_without_an_objection_is_asked_again() -> None:
    """Every answer stands behind what it answers."""
    one, _ = dialogues(STANCE, Path("own.jsonl"))
    assert [said["content"] for said in one["messages"]] == ["q", "h", "q", "g"]
    assert (one["source"], one["id"]) == ("own", "s-0")


def test_a_dialogue_is_passed_on_as_it_is() -> None:
    """Other labelled files go through unchanged."""
    record = {"messages": [], "id": "x"}
    assert list(dialogues(record, Path("own.jsonl"))) == [record]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_written_text_gives_whole_dialogues(path: Path) -> None:
    """No record of the folder is of a kind that is read wrong."""
    found = [
        one for line in path.open(encoding="utf-8") for one in dialogues(json.loads(line), path)
    ]
    assert len({one["id"] for one in found}) == len(found)
    for one in found:
        assert all(said["content"] for said in one["messages"]), one["id"]
