"""Stored sessions are judged again as they were: words, contents, times and decisions."""

from __future__ import annotations

from typing import Any

import pytest
from judging import fake_judge
from stored_values import make_entry, make_verdict

from promptguard.conversation import Role
from promptguard.errors import DataError, InputError
from promptguard.state import ReplyKind, TranscriptEntry
from promptguard.turns.input import Step, TurnInput
from promptguard.turns.walk import SECONDS_BETWEEN_TURNS, steps_from, walk
from promptguard.verdict import Action, ContentFinding, Evidence, SignalScore


def entry(role: Role, text: str | None, *, at: float = 0.0, **fields: Any) -> TranscriptEntry:
    return make_entry(text, role=role, timestamp=at, **fields)


def stored(**fields: Any) -> str:
    return make_verdict(**fields).to_json()


def test_turns_come_back_in_order_with_all_that_belongs_to_them() -> None:
    """Whatever the order in which the entries lie."""
    found = steps_from(
        [
            entry(Role.USER, "second", turn=2, at=9.0),
            entry(Role.USER, "first", at=3.0),
            entry(Role.TOOL, "page", turn=2, at=9.0),
            entry(Role.ASSISTANT, "a", at=4.0),
            entry(Role.ASSISTANT, "b", at=5.0),
        ],
        system="Be kind.",
    )
    first, second = found
    assert (first.turn.text, first.reply, first.timestamp) == ("first", "a\nb", 3.0)
    assert (second.turn.text, second.reply, second.timestamp) == ("second", None, 9.0)
    assert [content.text for content in second.turn.contents] == ["page"]
    assert {step.turn.system for step in found} == {"Be kind."}
    assert steps_from([]) == ()


def test_contents_keep_the_names_of_where_they_came_from() -> None:
    """As the verdict has them; what it does not name came from a tool."""
    finding = ContentFinding(index=1, origin="tools[0].description", risk=0.1, action=Action.ALLOW)
    (step,) = steps_from(
        [
            entry(Role.USER, "hi", verdict=stored(content=(finding,))),
            entry(Role.TOOL, "one"),
            entry(Role.TOOL, "two"),
        ]
    )
    assert [content.origin for content in step.turn.contents] == ["tool", "tools[0].description"]


def test_what_others_decided_is_not_asked_again() -> None:
    """A further judge's word and an operator's allowance are part of the record."""
    said = stored(
        scores=(SignalScore(name="fil", score=0.1), SignalScore(name="judge", score=0.7)),
        evidence=(Evidence(turn=1, signal="allowance", nats=-3.0, reason="allowance 4 by ann"),),
    )
    (step,) = steps_from([entry(Role.USER, "hi", verdict=said)])
    assert (step.turn.judged, step.turn.allowance) == (0.7, "allowance 4 by ann")
    (plain,) = steps_from([entry(Role.USER, "hi", verdict=stored())])
    assert (plain.turn.judged, plain.turn.allowance) == (None, "")


@pytest.mark.parametrize("role", [Role.USER, Role.TOOL, Role.ASSISTANT])
def test_a_session_without_its_text_cannot_be_judged_again(role: Role) -> None:
    """One missing text is enough, and the error says which settings drop it."""
    with pytest.raises(InputError, match="store_text, retention"):
        steps_from([entry(Role.USER, "hi"), entry(role, None)])


def test_a_broken_verdict_is_an_error_and_not_a_harmless_turn() -> None:
    """To judge without its decisions would change the outcome."""
    with pytest.raises(DataError):
        steps_from([entry(Role.USER, "hi", verdict='{"turn": 1}')])


def test_times_that_are_not_known_are_half_a_minute_apart() -> None:
    """From the last one that is."""
    times = [None, 100.0, None, 40.0]
    steps = [Step(turn=TurnInput(text="hello"), timestamp=at) for at in times]
    walked = [state.recent[-1].timestamp for _, state in walk(fake_judge(), steps, start=5.0)]
    known = [5.0 + SECONDS_BETWEEN_TURNS, 100.0, 100.0 + SECONDS_BETWEEN_TURNS]
    # A clock that goes back stands still.
    assert walked == [*known, known[-1]]


def test_a_reply_is_remembered_with_its_turn() -> None:
    """An empty answer is one too; a missing one is none."""
    replies = ["I'm sorry, but I can't help with that.", "", None]
    steps = [Step(turn=TurnInput(text="hello"), reply=reply) for reply in replies]
    *_, (_, state) = walk(fake_judge(), steps)
    kinds = [record.reply and record.reply.kind for record in state.recent]
    assert kinds[0] is ReplyKind.REFUSED
    assert (kinds[1] is None, kinds[2]) == (False, None)
    assert state.profile.refusals == 1
