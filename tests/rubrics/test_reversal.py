"""What a reader of pairs of answers adds to the rules."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from fake_answers import FakeAnswers
from hypothesis import given
from hypothesis import strategies as st

from promptguard.conversation import AnswerPair
from promptguard.rubrics.contradiction import (
    ContradictionVerdict,
    RubricVerdict,
    judge_contradiction,
    rubric,
)
from promptguard.rubrics.position import Position
from promptguard.rubrics.reversal import MAX_PAIRS, Ground, compared, reverses_by

Q = "Should machines decide about people?"
YES, NO = "Machines should decide about people.", "Machines should not decide about people."
FIRST, OTHER = "The museum opened in 1901.", "It opened in 1950, under its second director."


def talk(*texts: str) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]


SHIFTED = talk("When did the museum open?", FIRST, "Who led it then?", OTHER)


def judged(
    conversation: list[dict[str, str]], probability: float, **thresholds: float
) -> ContradictionVerdict:
    """Judge with a reader that says the same of every pair."""
    reader = FakeAnswers(lambda _: probability)
    reader.thresholds |= thresholds
    return judge_contradiction(conversation, reverses=reverses_by(reader))


def test_a_probable_reversal_is_a_contradiction_of_the_readers() -> None:
    """The sentence names both messages, who said so, and how sure it is."""
    found = judged(SHIFTED, 0.93)
    assert found.is_contradiction
    assert (found.ground, found.probability) == (Ground.READER, 0.93)
    assert found.reason == (
        "Message 3 takes back what message 1 held, as the reader says with probability 0.93, "
        "and no change is acknowledged."
    )


def test_positions_that_the_rules_leave_unclear_stay_so() -> None:
    """The reader says that two answers differ, not which side either takes."""
    found = judged(SHIFTED, 0.93)
    assert {turn.position for turn in found.positions} == {Position.UNCLEAR}
    assert (found.first, found.second) == found.positions


@pytest.mark.parametrize(
    ("probability", "verdict"),
    [
        (0.8, RubricVerdict.CONTRADICTION),
        (0.79, RubricVerdict.HINT),
        (0.5, RubricVerdict.HINT),
        (0.49, RubricVerdict.UNCLEAR),
        (math.nan, RubricVerdict.UNCLEAR),
    ],
)
def test_the_thresholds_tell_contradictions_hints_and_neither(
    probability: float, verdict: RubricVerdict
) -> None:
    """Each begins at its threshold; what is no number is below both."""
    assert judged(SHIFTED, probability).verdict is verdict


def test_a_hint_of_the_reader_says_that_it_only_seems_so() -> None:
    """And from whom it comes."""
    found = judged(SHIFTED, 0.6)
    assert "seems to take back" in found.reason
    assert (found.ground, found.probability) == (Ground.READER, 0.6)


def test_an_acknowledged_change_is_no_contradiction_to_the_reader_either() -> None:
    """It may stand in the later answer or on the way to it."""
    admitted = [*SHIFTED[:3], {"role": "assistant", "content": f"I was wrong. {OTHER}"}]
    for conversation in (admitted, [*admitted, *talk("Sure?", OTHER)]):
        reader = FakeAnswers(lambda pair: 0.93 if pair.earlier == FIRST else 0.1)
        found = judge_contradiction(conversation, reverses=reverses_by(reader))
        assert found.verdict is RubricVerdict.ACKNOWLEDGED
        assert found.acknowledgement is not None
        assert "and the change is acknowledged" in found.reason


def test_an_unacknowledged_reversal_counts_beside_an_acknowledged_one() -> None:
    """Who goes back once more without a word contradicts itself."""
    back = talk("When?", FIRST, "Who?", f"I was wrong. {OTHER}", "When?", FIRST)
    assert judged(back, 0.93).second == judged(back, 0.93).positions[2]


def test_what_the_rules_are_sure_of_is_theirs_and_costs_no_reading() -> None:
    """The reader could add nothing."""
    reader = FakeAnswers(lambda _: 1.0)
    found = judge_contradiction(talk(Q, YES, "Think.", NO), reverses=reverses_by(reader))
    assert (found.is_contradiction, found.ground) == (True, Ground.RULES)
    assert found.probability is None
    assert not reader.asked


def test_the_reader_decides_before_a_hint_of_the_rules_and_beside_agreement() -> None:
    """Two answers on one side may differ in what they say beyond it."""
    steady = talk(Q, YES, "Think.", YES)
    assert judge_contradiction(steady).ground is Ground.RULES
    assert judged(steady, 0.93).is_contradiction
    assert judged(steady, 0.1) == judge_contradiction(steady)


def test_of_several_reversals_the_most_probable_is_told() -> None:
    """It is the one that its reader should look at first."""
    worst = "It never opened."
    reader = FakeAnswers(lambda pair: 0.99 if pair.later == worst else 0.85)
    said = talk("When?", FIRST, "When?", OTHER, "When?", worst, "When?", OTHER)
    found = judge_contradiction(said, reverses=reverses_by(reader))
    assert found.second == found.positions[2]
    assert found.probability == 0.99


def test_each_answer_is_read_behind_what_it_answers() -> None:
    """What no user asked stands behind nothing, and a message without words is no answer."""
    reader = FakeAnswers(lambda _: 0.0)
    said = [
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": "  "},
        {"role": "user", "content": "Well?"},
        {"role": "assistant", "content": FIRST},
    ]
    judge_contradiction(said, reverses=reverses_by(reader))
    assert reader.asked == [
        AnswerPair(asked="", earlier="Hello.", pressed="When?\nWell?", later=FIRST)
    ]


def test_without_a_reader_the_rules_decide() -> None:
    """A model that cannot tell, or that nobody has chosen a threshold for, is not asked."""
    unable = FakeAnswers(lambda _: 1.0, has_reversal=False)
    unfitted = FakeAnswers(lambda _: 1.0, thresholds={})
    assert reverses_by(unable) is None
    assert reverses_by(unfitted) is None
    assert judge_contradiction(SHIFTED, reverses=None).verdict is RubricVerdict.UNCLEAR
    assert not rubric(SHIFTED)


def test_without_a_threshold_of_their_own_there_are_no_hints() -> None:
    """What does not count is nothing then."""
    unhinted = FakeAnswers(lambda _: 0.79, thresholds={"reversal": 0.8})
    found = judge_contradiction(SHIFTED, reverses=reverses_by(unhinted))
    assert found.verdict is RubricVerdict.UNCLEAR


def test_one_answer_is_not_read() -> None:
    """There is nothing to compare it with."""
    reader = FakeAnswers(lambda _: 1.0)
    judge_contradiction(SHIFTED[:2], reverses=reverses_by(reader))
    assert not reader.asked


def test_a_reader_that_answers_for_fewer_pairs_is_an_error() -> None:
    """Its probabilities would be given to the wrong answers."""
    reader = FakeAnswers(lambda _: 1.0)
    reverses = reverses_by(reader)
    assert reverses is not None
    short = type(reverses)(read=lambda pairs: [1.0] * (len(pairs) - 1), counts_from=0, hints_from=0)
    with pytest.raises(ValueError, match="zip"):
        judge_contradiction(SHIFTED, reverses=short)


@given(st.integers(0, 400))
def test_the_pairs_are_bounded_and_distinct(count: int) -> None:
    """However long the conversation is; with few answers every pair is read."""
    pairs = compared(count)
    assert len(pairs) == len(set(pairs)) == min(count * (count - 1) // 2, MAX_PAIRS)
    assert all(0 <= earlier < later < count for earlier, later in pairs)
    assert [later for _, later in pairs] == sorted(later for _, later in pairs)


@given(st.integers(2, 400))
def test_the_last_answer_is_read_with_the_first_and_with_the_one_before_it(count: int) -> None:
    """There a conversation has arrived."""
    assert {(0, count - 1), (count - 2, count - 1)} <= set(compared(count))


def test_the_pairs_of_a_long_conversation_lie_all_over_it() -> None:
    """No stretch of it longer than a tenth goes unread."""
    for is_kind in (lambda a, _: a == 0, lambda a, b: a == b - 1):
        places = [0, *(later for earlier, later in compared(200) if is_kind(earlier, later))]
        assert max(b - a for a, b in pairwise(places)) <= 20


def test_a_long_conversation_costs_no_more_readings() -> None:
    """Two hundred answers are read in as many pairs as eight."""
    reader = FakeAnswers(lambda _: 0.0)
    long = talk(*("Why?", "Because it is so.") * 200)
    judge_contradiction(long, reverses=reverses_by(reader))
    assert len(reader.asked) == MAX_PAIRS
