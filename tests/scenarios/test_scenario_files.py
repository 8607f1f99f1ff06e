"""The bundled conversations as data."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from promptguard.errors import DataError
from promptguard.scenarios import scenario_from_json, shipped_scenarios


def body(**changes: object) -> str:
    values = {
        "id": "a-b",
        "title": "A",
        "lang": "en",
        "kind": "ordinary",
        "description": "About a.",
        "turns": [{"user": "hello"}],
    }
    return json.dumps({**values, **changes})


def test_there_are_enough_of_them_in_enough_languages() -> None:
    """At least 42 conversations, in English and six other languages, of both kinds."""
    scenarios = shipped_scenarios()
    assert len(scenarios) >= 42
    assert len({scenario.lang for scenario in scenarios} - {"en"}) >= 6
    assert {scenario.kind for scenario in scenarios} == {"attack", "ordinary"}


def test_every_id_is_its_file_name() -> None:
    """A conversation is found by its id."""
    folder = files("promptguard") / "data" / "scenarios"
    names = {item.name.removesuffix(".json") for item in folder.iterdir()}
    assert names == {scenario.id for scenario in shipped_scenarios()}


def test_every_conversation_demands_something() -> None:
    """A conversation without an expectation would test nothing."""
    for scenario in shipped_scenarios():
        demands = [turn.expect for turn in scenario.turns]
        assert any(d.min_mode or d.max_mode or d.passes is not None for d in demands), scenario.id


def test_a_block_is_said_over_and_its_demand_holds_for_silent_turns() -> None:
    """Repeated turns come one after the other; their own expectation goes first."""
    block = {
        "repeat": 2,
        "turns": [{"user": "a"}, {"user": "b", "expect": {"max_mode": "ELEVATED"}}],
        "expect": {"max_mode": "SAFE"},
    }
    turns = scenario_from_json(body(turns=[block, {"user": "c"}])).turns
    assert [turn.user for turn in turns] == ["a", "b", "a", "b", "c"]
    assert [turn.expect.max_mode for turn in turns] == [
        "SAFE",
        "ELEVATED",
        "SAFE",
        "ELEVATED",
        None,
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "file"),
        ("[]", "file"),
        (body(turns=[]), "turns"),
        (body(kind="mixed"), "kind"),
        (body(id="A b"), "id"),
        (body(turns=[{"user": ""}]), "turns"),
        (body(turns=[{"user": "a", "expect": {"min_mode": "BAD"}}]), "turns"),
        (body(note="x"), "note"),
    ],
)
def test_a_broken_file_is_named_with_the_part_at_fault(text: str, place: str) -> None:
    """The message says which file and which part, and does not repeat what it holds."""
    with pytest.raises(DataError, match=rf"^x\.json: {place}"):
        scenario_from_json(text, where="x.json")
