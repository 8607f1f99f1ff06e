"""The bundled conversations as data."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from promptguard.errors import DataError
from promptguard.scenarios import Expectation, scenario_from_json, shipped_scenarios
from promptguard.verdict import Action, Mode, Verdict


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
    """At least 116 conversations, in English and six other languages, of both kinds."""
    scenarios = shipped_scenarios()
    assert len(scenarios) >= 116
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
        assert any(turn.expect.is_demanding for turn in scenario.turns), scenario.id


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
        Mode.SAFE,
        Mode.ELEVATED,
        Mode.SAFE,
        Mode.ELEVATED,
        None,
    ]


def test_settings_and_the_application_prompt_are_part_of_a_scenario() -> None:
    """A file names the policy it runs under, what an operator does, and how long a pause is."""
    turn = {"user": "a", "before": "release", "pause_s": 3600, "tools": ["page"]}
    text = body(turns=[turn], system="Be kind.", config={"policy": {"lock_after_blocks": 2}})
    scenario = scenario_from_json(text)
    assert scenario.system == "Be kind."
    assert scenario.config.policy.lock_after_blocks == 2
    assert (scenario.turns[0].before, scenario.turns[0].pause_s) == ("release", 3600)


@pytest.mark.parametrize(
    ("expect", "fault"),
    [
        (Expectation(action=Action.BLOCK), "action block"),
        (Expectation(min_action=Action.STRIP), "action at least strip"),
        (Expectation(max_action=Action.ANNOTATE), "action at most annotate"),
        (Expectation(min_mode=Mode.CRITICAL), "mode at least CRITICAL"),
        (Expectation(max_mode=Mode.SAFE), "mode at most SAFE"),
        (Expectation(turn_risk_above=0.5), "turn risk above 0.5"),
        (Expectation(turn_risk_below=0.3), "turn risk below 0.3"),
        (Expectation(is_locked=True), "locked: True"),
    ],
)
def test_an_unmet_expectation_says_what_was_expected(expect: Expectation, fault: str) -> None:
    """Each demand is checked by itself and named in words."""
    verdict = Verdict(turn=1, action=Action.STEER, mode=Mode.ELEVATED, turn_risk=0.4)
    assert expect.is_demanding
    assert expect.faults(verdict) == (fault,)


def test_a_met_expectation_has_no_faults() -> None:
    """Bounds hold at their own value; an empty expectation asks for nothing."""
    verdict = Verdict(turn=1, action=Action.STEER, mode=Mode.ELEVATED, turn_risk=0.4)
    bounds = Expectation(
        action=Action.STEER,
        min_action=Action.STEER,
        max_action=Action.STEER,
        min_mode=Mode.ELEVATED,
        max_mode=Mode.ELEVATED,
        turn_risk_above=0.3,
        turn_risk_below=0.5,
        is_locked=False,
    )
    assert bounds.faults(verdict) == ()
    assert not Expectation(known_miss="later").is_demanding


def test_a_known_miss_says_why_and_still_demands() -> None:
    """A reason alone would excuse nothing."""
    for scenario in shipped_scenarios():
        for turn in scenario.turns:
            assert turn.expect.is_demanding or not turn.expect.known_miss, scenario.id


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
        (body(turns=[{"user": "a", "expect": {"action": "shout"}}]), "turns"),
        (body(config={"preset": "odd"}), "config"),
        (body(note="x"), "note"),
    ],
)
def test_a_broken_file_is_named_with_the_part_at_fault(text: str, place: str) -> None:
    """The message says which file and which part, and does not repeat what it holds."""
    with pytest.raises(DataError, match=rf"^x\.json: {place}"):
        scenario_from_json(text, where="x.json")
