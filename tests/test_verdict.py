"""A verdict has one JSON form, which gives back the same verdict or says that it cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.errors import DataError
from promptguard.verdict import (
    Action,
    ContentFinding,
    Evidence,
    Mode,
    SignalScore,
    Span,
    Verdict,
)

FULL = Verdict(
    turn=3,
    action=Action.STRIP,
    mode=Mode.SUSPECT,
    turn_risk=0.1 + 0.2,
    accumulated_risk=1e-17,
    message_risk=1.0,
    prior=-4.25,
    evidence=(Evidence(turn=3, signal="fil", nats=2.5, reason="violates"),),
    scores=(SignalScore(name="intent", score=0.5, parts={"safe": 0.25}),),
    content=(ContentFinding(index=0, origin="tool", risk=0.9, action=Action.STRIP, end=7),),
    directives=("FIL-01",),
    tags=("LLM01",),
    spans=(Span(start=1, end=4, label="hazard.poison"),),
    readers=("quick", "thorough"),
    latency_ms=12.5,
)


def test_json_gives_back_the_same_verdict() -> None:
    """Every number to its last bit, names of modes in words."""
    assert Verdict.from_json(FULL.to_json()) == FULL
    assert Verdict.from_json(FULL.to_json().encode()) == FULL
    body = FULL.to_dict()
    assert body == json.loads(FULL.to_json())
    assert (body["mode"], body["action"]) == ("SUSPECT", "strip")


@given(st.floats(0, 1), st.sampled_from(Mode), st.sampled_from(Action), st.text(max_size=20))
def test_any_verdict_survives(risk: float, mode: Mode, action: Action, fault: str) -> None:
    """Whatever the risk, the mode and the words of a fault."""
    verdict = Verdict(turn=1, action=action, mode=mode, turn_risk=risk, fault=fault)
    assert Verdict.from_json(verdict.to_json()) == verdict


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "PANIC"},
        {"mode": "suspect"},
        {"mode": 17},
        {"action": "shout"},
        {"action": None},
        {"turn": "third"},
        {"evidence": {}},
        {"evidence": [{"turn": 1}]},
        {"content": [{"index": 0, "origin": "x", "risk": 0.5, "action": "panic"}]},
        {"spans": [[0, 1, "x"]]},
        {"turn_risk": "high"},
    ],
)
def test_a_stored_verdict_of_another_form_is_an_error(change: dict[str, Any]) -> None:
    """The error counts the faults and quotes nothing of what is stored."""
    body = FULL.to_dict() | change
    with pytest.raises(DataError, match=r"expected form \(\d+ faults\)") as refused:
        Verdict.from_json(json.dumps(body))
    assert "shout" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '{"action": "allow"}', "\x00", "1e999"])
def test_what_is_no_verdict_at_all_is_an_error(text: str) -> None:
    """Turn and action are the least that a verdict has."""
    with pytest.raises(DataError):
        Verdict.from_json(text)


def test_fields_of_a_newer_version_are_passed_over() -> None:
    """A guard that was not upgraded yet reads what the others write."""
    body = FULL.to_dict() | {"invented_later": {"deep": [1]}}
    assert Verdict.from_json(json.dumps(body)) == FULL


def test_a_verdict_written_before_a_field_existed_is_read() -> None:
    """What an old one does not say is as if nothing had been found."""
    old = Verdict.from_json('{"turn": 1, "action": "allow"}')
    assert old == Verdict(turn=1, action=Action.ALLOW)
    assert old.latency_ms is None


def test_actions_are_ordered_from_mild_to_severe() -> None:
    """The stores sort by this number, so that it must not change."""
    expected = ["allow", "annotate", "steer", "review", "strip", "block"]
    assert [action.value for action in sorted(Action, key=lambda a: a.severity)] == expected
    assert [action.severity for action in Action] == list(range(6))


def test_top_evidence_speaks_for_an_attack_the_strongest_first() -> None:
    """What speaks against one, or for nothing, is no evidence of it; ties keep their order."""
    nats = {"a": 0.5, "b": -3.0, "c": 2.0, "d": 0.0, "e": 0.5}
    evidence = tuple(Evidence(turn=1, signal=name, nats=value) for name, value in nats.items())
    verdict = Verdict(turn=1, action=Action.ALLOW, evidence=evidence)
    assert [entry.signal for entry in verdict.top_evidence] == ["c", "a", "e"]
    assert Verdict(turn=1, action=Action.ALLOW).top_evidence == ()
