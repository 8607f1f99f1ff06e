"""The texts that prompts with a slot are made of, and what is made of them."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

from training.slots import FRAMES, SLOT, inline, slot_pairs

CORPUS = Path(__file__).parents[1] / "training" / "corpus"


def test_every_template_has_a_slot_and_inputs_of_both_kinds() -> None:
    """A template without a slot would show the same text as an attack and as innocent.

    Some applications repeat the input.
    """
    entries = [json.loads(line) for line in (CORPUS / "slots.jsonl").open(encoding="utf-8")]
    assert len(entries) == len({entry["template"] for entry in entries})
    for entry in entries:
        assert entry["template"].count(SLOT) in (1, 2), entry["template"]
        assert SLOT not in entry["system"]
        assert min(len(entry["honest"]), len(entry["hijack"])) >= 7
        assert not set(entry["honest"]) & set(entry["hijack"])


def test_a_pair_differs_in_its_input_and_stays_on_one_side() -> None:
    """A template that is held out trains nothing."""
    sides = [list(slot_pairs(CORPUS, is_held=is_held)) for is_held in (False, True)]
    for rows in sides:
        assert set(Counter(row["pair"] for row in rows).values()) == {2}
        assert Counter(row["attack"] for row in rows) == {0: len(rows) // 2, 1: len(rows) // 2}
    trained, held = ({row["pair"].split("-")[1] for row in rows} for rows in sides)
    assert trained
    assert held
    assert not trained & held


def test_the_application_is_the_system_prompt_where_the_input_stands_alone() -> None:
    """The same application is seen both ways."""
    rows = list(slot_pairs(CORPUS, is_held=True))
    assert all(row["system"] for row in rows if row["task"] == "context")
    assert not any(row["system"] for row in rows if row["task"] == "message")


def document(label: int, name: str, text: str) -> dict[str, object]:
    """Return a composed document as `training.compose` makes it."""
    said = [["user", "Summarise {this}."], ["tool", text]]
    return {"said": said, "attack": label, "pair": name, "lang": "en"}


def test_documents_stand_in_one_message_with_their_request() -> None:
    """Both of a pair are framed alike; braces in the text are text."""
    pairs = [f"doc-{number}" for number in range(10)]
    rows = [document(label, name, f'{{"note": "{label}"}}') for name in pairs for label in (0, 1)]
    made = inline(rows, random.Random(0))
    assert len(made) == 4
    innocent, attack = (row["said"][0][1] for row in made[:2])
    assert "Summarise {this}." in innocent
    assert innocent.replace('"0"', '"1"') == attack


def test_a_document_without_its_pair_or_too_long_is_left_out() -> None:
    """Else the frame or the length would tell the label."""
    alone = [document(1, f"doc-{number}", "short") for number in range(10)]
    long = [document(label, f"doc-{n}", "x" * 2000) for n in range(10) for label in (0, 1)]
    assert inline(alone, random.Random(0)) == []
    assert inline(long, random.Random(0)) == []


def test_frames_hold_both_the_request_and_the_document() -> None:
    """A frame that drops one of them would teach nothing."""
    assert all("{task}" in frame and "{body}" in frame for frame in FRAMES)
