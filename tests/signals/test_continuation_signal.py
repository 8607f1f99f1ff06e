"""The signal `continuation`: a turn that goes on with something risky."""

import pytest
from turn_contexts import current_turn, direction, past_turn

from promptguard.protocols import FilReading
from promptguard.signals.continuation import continuation
from promptguard.state import ReplyKind

FOLLOW_UP = FilReading(features=("follow_up",))
NORTH, EAST = direction(1.0), direction(0.0, 1.0)


def test_the_risk_of_the_turn_that_is_continued_is_carried_on() -> None:
    """A close turn brings nearly all of its risk, faded by one turn, and is named."""
    past = [past_turn("the harbour crane", turn=1, risk=0.8, vector=NORTH)]
    result = continuation(current_turn("the harbour crane", past=past, embedding=NORTH))
    assert result.score == pytest.approx(0.8, abs=0.01)
    assert result.reason == "goes on from turn 1"
    assert result.parts == {"turn": 1.0}


def test_another_subject_continues_nothing() -> None:
    """A harmless turn after an attack is not held to it."""
    past = [past_turn("picking a lock", turn=1, risk=0.9, vector=NORTH)]
    result = continuation(current_turn("vegetable soup", past=past, embedding=EAST))
    assert result.score == 0.0


def test_shared_words_are_enough_without_a_model() -> None:
    """Where there are no embeddings, key terms tell the subject."""
    past = [past_turn("picking the harbour lock", turn=1, risk=0.8)]
    assert continuation(current_turn("which harbour lock?", past=past)).score > 0.3


def test_a_bare_follow_up_continues_what_it_follows() -> None:
    """It says nothing of its own, so the last turn with a subject is meant."""
    past = [
        past_turn("picking the harbour lock", turn=1, risk=0.8),
        past_turn("and then?", turn=2, risk=0.0, is_follow_up=True, key_terms=()),
    ]
    result = continuation(current_turn("go on", past=past, fil=FOLLOW_UP))
    assert result.reason == "goes on from turn 1"
    assert result.score == pytest.approx(0.8 * 0.9)


def test_a_follow_up_does_not_reach_behind_the_last_subject() -> None:
    """What was asked before a harmless turn with a subject of its own is over."""
    past = [
        past_turn("picking the harbour lock", turn=1, risk=0.8),
        past_turn("cooking vegetable soup", turn=2, risk=0.05),
    ]
    result = continuation(current_turn("go on", past=past, fil=FOLLOW_UP))
    assert result.score == pytest.approx(0.05)


def test_an_operational_answer_makes_its_turn_weigh_more() -> None:
    """A refusal does not make it weigh less: the request was made."""

    def after(reply: ReplyKind | None) -> float:
        past = [past_turn("the harbour lock", turn=1, risk=0.5, vector=NORTH, reply=reply)]
        return continuation(current_turn("the harbour lock", past=past, embedding=NORTH)).score

    assert after(ReplyKind.OPERATIONAL) == pytest.approx(1.3 * after(None))
    assert after(ReplyKind.REFUSED) == after(None)


def test_older_turns_count_less() -> None:
    """Each turn in between takes its share."""
    risky = past_turn("the harbour lock", turn=1, risk=0.8, vector=NORTH)
    calm = past_turn("vegetable soup", turn=2, vector=EAST)
    fresh = continuation(current_turn("the harbour lock", past=[risky], embedding=NORTH))
    older = continuation(current_turn("the harbour lock", past=[risky, calm], embedding=NORTH))
    assert older.score == pytest.approx(0.9 * fresh.score)


def test_embeddings_of_another_model_are_no_likeness() -> None:
    """A vector of another size says nothing."""
    past = [past_turn("one thing", turn=1, risk=0.8, vector=NORTH)]
    result = continuation(current_turn("other words", past=past, embedding=direction(1.0)[:128]))
    assert result.score == 0.0
