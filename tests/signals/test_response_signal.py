"""The response signal reads what the assistant did."""

from __future__ import annotations

import pytest
from turn_contexts import current_turn, past_turn

from promptguard.protocols import SignalScore
from promptguard.signals.response import response
from promptguard.state import Action, ReplyKind

SUBJECT = "Tell me about padlocks"


def _after(*replies: ReplyKind | None, risk: float = 0.8) -> SignalScore:
    past = [
        past_turn(SUBJECT, turn=turn, risk=risk, reply=reply) for turn, reply in enumerate(replies)
    ]
    return response(current_turn("and then?", past=past))


def test_a_refusal_is_evidence_about_the_request() -> None:
    """More than a partial answer, more than none."""
    refused, partial = _after(ReplyKind.REFUSED), _after(ReplyKind.PARTIAL)
    assert refused.score > partial.score > 0.0
    assert refused.reason == "refused at turn 0"


def test_detail_counts_by_the_risk_of_what_was_asked() -> None:
    """A recipe for bread is no leak."""
    assert _after(ReplyKind.OPERATIONAL, risk=0.0).score == 0.0
    assert _after(ReplyKind.OPERATIONAL, risk=0.8).score > 0.4


def test_giving_in_after_a_refusal_is_erosion() -> None:
    """Refused, then answered on the same subject: the worst sign."""
    result = _after(ReplyKind.REFUSED, ReplyKind.PARTIAL, ReplyKind.OPERATIONAL)
    assert result.score >= 0.9
    assert result.reason == "refused at turn 0, operational at turn 2"
    assert result.parts["shift"] == 1.0
    assert _after(ReplyKind.REFUSED, ReplyKind.COMPLIED).score < result.score


def test_an_answer_on_another_subject_is_no_erosion() -> None:
    """Refusing one thing and answering another is as it should be."""
    past = [
        past_turn(SUBJECT, turn=0, reply=ReplyKind.REFUSED),
        past_turn("Which bread keeps longest?", turn=1, reply=ReplyKind.COMPLIED),
    ]
    assert response(current_turn(past=past)).score == 0.0


def test_a_refusal_is_counted_once() -> None:
    """Only the newest answer speaks; what was said of older ones stands in the ledger."""
    assert _after(ReplyKind.REFUSED, None).score == 0.0


def test_the_guards_own_refusal_is_no_evidence() -> None:
    """A block must not feed on itself."""
    past = [past_turn(SUBJECT, reply=ReplyKind.REFUSED, action=Action.BLOCK)]
    assert response(current_turn(past=past)).score == 0.0


@pytest.mark.parametrize("replies", [(), (ReplyKind.NONE,), (None,), (ReplyKind.COMPLIED,)])
def test_nothing_to_read_says_nothing(replies: tuple[ReplyKind | None, ...]) -> None:
    """No answer, or a plain one, is no evidence."""
    assert _after(*replies).score == 0.0
