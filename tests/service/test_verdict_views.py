"""What the API, the headers, the logs and the traces show of a verdict."""

from __future__ import annotations

from typing import Any

import pytest
from stored_values import make_entry, make_record, make_result, make_verdict

from promptguard.risk.weights import shipped_weights
from promptguard.service.verdicts import (
    block_reason,
    category_scores,
    contents_of,
    is_flagged,
    is_judged,
    is_passing,
    is_stored_block,
    log_fields,
    remembered_verdict,
    replay_view,
    span_attributes,
    stored_verdict,
    turn_view,
    verdict_headers,
)
from promptguard.state import Lock, SessionProfile, SessionState
from promptguard.verdict import Action, ContentFinding, Evidence, Mode, SignalScore, Verdict

EVIDENCE = tuple(
    Evidence(turn=1, signal=name, nats=nats, reason="the user's words")
    for name, nats in (("a", 1.0), ("b", 3.0), ("c", -5.0), ("d", 2.0), ("e", 0.5))
)


@pytest.mark.parametrize(
    ("fields", "judged"),
    [
        ({}, True),
        ({"evidence": EVIDENCE}, True),
        ({"fault": "the model is broken"}, False),
        ({"fault": "Second opinion: no answer", "evidence": EVIDENCE}, True),
    ],
)
def test_could_not_judge_is_told_from_judged(fields: dict[str, Any], judged: bool) -> None:
    """Where a further judge failed, the first one's word stands; the header tells of the rest."""
    found = make_verdict(**fields)
    assert is_judged(found) is judged
    assert ("x-promptguard-judged" in verdict_headers(make_result(found))) is not judged
    assert turn_view(make_result(found), "first").is_judged is judged


def test_headers_hold_numbers_and_names_alone() -> None:
    """ASCII, so that any client can read them, and rounded."""
    found = make_verdict(
        mode=Mode.SUSPECT, turn_risk=0.123456, accumulated_risk=1.0, evidence=EVIDENCE
    )
    assert verdict_headers(make_result(found)) == {
        "x-promptguard-mode": "SUSPECT",
        "x-promptguard-risk": "0.1235",
        "x-promptguard-accumulated-risk": "1.0000",
        "x-promptguard-session": "app:s",
        "x-promptguard-action": "allow",
    }


def test_a_refusal_is_shown_only_where_the_turn_was_blocked() -> None:
    """A reply of the model is not a refusal, nor is one that was never sent."""
    blocked = make_verdict(action=Action.BLOCK)
    assert turn_view(make_result(blocked, reply="no"), "first").refusal == "no"
    assert turn_view(make_result(blocked, reply="no", is_enforced=False), "first").refusal is None
    assert turn_view(make_result(make_verdict(), reply="an answer"), "first").refusal is None


def test_a_log_line_names_the_strongest_and_quotes_nobody() -> None:
    """Three signals at most, those that speak for an attack; origins of what was stripped."""
    content = tuple(
        ContentFinding(index=at, origin=f"tools[{at}]", risk=0.9, action=action, reason="words")
        for at, action in enumerate((Action.ALLOW, Action.STRIP))
    )
    fields = log_fields(
        make_result(make_verdict(evidence=EVIDENCE, content=content, turn_risk=0.123456))
    )
    assert fields["signals"] == ["b", "d", "a"]
    assert fields["stripped"] == ["tools[1]"]
    assert fields["turn_risk"] == 0.1235
    assert "words" not in str(fields)


def test_a_trace_event_names_the_signals_and_quotes_nobody() -> None:
    """The reasons may hold words of rules; only the names go out."""
    attributes = span_attributes(make_verdict(evidence=EVIDENCE, tags=("LLM01",), mode=Mode.UNSAFE))
    assert attributes["gen_ai.evaluation.explanation"] == "b, d, a, e"
    assert attributes["gen_ai.evaluation.score.label"] == "UNSAFE"
    assert attributes["promptguard.tags"] == ["LLM01"]
    assert "words" not in str(attributes)


@pytest.mark.parametrize("text", ["", "{", '{"turn": 1}', '{"turn": 1, "action": "later"}', "null"])
def test_an_odd_row_does_not_break_a_page(text: str) -> None:
    """Another version may have written it: nothing is known of that turn, and nothing raised."""
    assert stored_verdict(make_entry(verdict=text)) is None
    assert contents_of(make_entry(verdict=text)) == ()
    assert not is_stored_block(make_entry(verdict=text))


def test_a_stored_verdict_is_read_back() -> None:
    """Its contents are looked for only where there are some."""
    finding = ContentFinding(index=0, origin="tool", risk=0.9, action=Action.STRIP)
    plain, poisoned = make_verdict(action=Action.BLOCK), make_verdict(content=(finding,))
    assert stored_verdict(make_entry(verdict=plain.to_json())) == plain
    assert is_stored_block(make_entry(verdict=plain.to_json()))
    assert not is_stored_block(make_entry(verdict=poisoned.to_json()))
    assert contents_of(make_entry(verdict=plain.to_json())) == ()
    assert contents_of(make_entry(verdict=poisoned.to_json())) == (finding,)
    assert Verdict.from_json(block_reason(poisoned)) == poisoned


def test_the_state_alone_tells_of_the_last_turn() -> None:
    """For stores that keep no verdicts; a session without turns has been harmless."""
    new = remembered_verdict(SessionState(session_id="s"))
    assert new == make_verdict(turn=0)
    last = make_record(
        turn=4,
        message_risk=0.25,
        turn_risk=0.5,
        mode=Mode.CAUTIOUS,
        action=Action.STEER,
        is_hard=True,
    )
    state = SessionState(
        session_id="s",
        recent=(last,),
        mode=Mode.ELEVATED,
        accumulated_risk=0.75,
        profile=SessionProfile(turns=4),
        lock=Lock(turn=4, reason="hard violation"),
    )
    assert remembered_verdict(state) == make_verdict(
        turn=4,
        action=Action.STEER,
        mode=Mode.ELEVATED,
        turn_risk=0.5,
        accumulated_risk=0.75,
        message_risk=0.25,
        is_hard=True,
        is_locked=True,
    )


def test_only_a_block_keeps_a_turn_from_the_model() -> None:
    """A stripped turn goes on without what was stripped."""
    assert [action for action in Action if not is_passing(action)] == [Action.BLOCK]


@pytest.mark.parametrize(
    ("other", "is_changed"),
    [
        (make_verdict(), False),
        (make_verdict(turn_risk=0.9, mode=Mode.CRITICAL), False),
        (make_verdict(action=Action.STEER), True),
    ],
)
def test_a_replay_differs_where_an_action_does(other: Verdict, is_changed: bool) -> None:
    """Another risk that leads to the same action changes nothing for anybody."""
    view = replay_view("s", [(make_verdict(), make_verdict()), (make_verdict(), other)])
    assert view.is_changed is is_changed
    assert len(view.turns) == 2
    assert not replay_view("s", []).is_changed


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"directive": 0.0}),
        ({"scores": (SignalScore(name="fil", score=0.8),)}, {"directive": 0.0}),
        ({"directives": ("FIL-01",)}, {"directive": 0.0}),
        (
            {"directives": ("FIL-01",), "scores": (SignalScore(name="fil", score=0.8),)},
            {"directive": 0.8},
        ),
        (
            {
                "scores": (
                    SignalScore(name="semantic", score=0.4, parts={"harmful": 0.4, "x": 1.0}),
                )
            },
            {"directive": 0.0, "harmful": 0.4},
        ),
    ],
)
def test_moderation_has_the_categories_that_were_judged(
    fields: dict[str, Any], expected: dict[str, float]
) -> None:
    """A score of the rules counts where a directive is violated, kinds where the readers ran."""
    assert category_scores(make_verdict(**fields)) == expected


def test_moderation_flags_from_the_suspect_range_on() -> None:
    """And a hard violation, whatever the risk."""
    modes = shipped_weights().modes
    start = dict(modes.starts())[Mode.SUSPECT]
    assert is_flagged(make_verdict(turn_risk=start), modes)
    assert not is_flagged(make_verdict(turn_risk=start - 1e-9), modes)
    assert is_flagged(make_verdict(is_hard=True), modes)
