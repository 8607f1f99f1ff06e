"""A streamed answer held back: what may go, what is still to be judged, what is recorded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.service.openai_wire import ChatWire
from promptguard.service.replies import JUDGE_EVERY_CHARS, MAX_RECORDED, HoldBack
from promptguard.service.wire import AnswerPart, ChoiceText


def event(text: str, index: int = 0, shown: str | None = None) -> AnswerPart:
    choice = ChoiceText(index=index, text=text, shown=text if shown is None else shown)
    return AnswerPart(choices=(choice,))


def test_the_end_of_an_answer_is_kept_back_until_it_is_judged() -> None:
    """An event goes once `chars` more characters were judged after it."""
    hold = HoldBack(5)
    hold.take("1", event("abcde"))
    assert hold.is_due
    assert hold.take_unjudged() == {0: "abcde"}
    assert hold.release() == []
    hold.take("2", event("fghij"))
    hold.take_unjudged()
    assert hold.release() == ["1"]
    assert (hold.sent, hold.text) == ("abcde", "abcdefghij")
    assert hold.release(everything=True) == ["2"]


def test_nothing_goes_that_was_not_judged() -> None:
    """However much has come since."""
    hold = HoldBack(2)
    hold.take("1", event("x" * 100))
    assert hold.release() == []
    hold.take("2", event("y" * 100))
    assert hold.release() == []


def test_each_piece_is_judged_once() -> None:
    """Each choice apart; a second asking brings only what came since."""
    hold = HoldBack(3)
    hold.take("1", event("abc", index=1))
    hold.take("2", event("de", index=0))
    assert hold.take_unjudged() == {0: "de", 1: "abc"}
    assert hold.take_unjudged() == {}
    assert not hold.is_due
    hold.take("3", event("fgh", index=1))
    assert hold.take_unjudged() == {1: "fgh"}


def test_without_holding_back_everything_goes_at_once() -> None:
    """And is judged from time to time as it passes."""
    hold = HoldBack(0)
    hold.take("1", event("abc"))
    assert not hold.is_due
    assert hold.release() == ["1"]
    hold.take("2", event("x" * JUDGE_EVERY_CHARS))
    assert hold.is_due


def test_what_is_shown_beside_the_answer_is_judged_and_not_recorded() -> None:
    """Reasoning, and the other choices."""
    hold = HoldBack(4)
    hold.take("1", event("", shown="thinking"))
    hold.take("2", event("other", index=1))
    hold.take("3", event("said"))
    assert hold.take_unjudged() == {0: "thinkingsaid", 1: "other"}
    assert hold.text == "said"


def test_events_without_text_wait_for_those_before_them() -> None:
    """The order of a stream is kept."""
    hold = HoldBack(2)
    hold.take("1", event("abcd"))
    hold.take("2", AnswerPart())
    hold.take("3", event("efgh"))
    hold.take_unjudged()
    assert hold.release() == ["1", "2"]


def test_a_long_answer_is_recorded_up_to_a_bound() -> None:
    """All of it is judged all the same."""
    hold = HoldBack(0)
    for number in range(3):
        hold.take(str(number), event("x" * (MAX_RECORDED // 2)))
    assert len(hold.text) == MAX_RECORDED
    assert len(hold.take_unjudged()[0]) == 3 * (MAX_RECORDED // 2)


@given(
    pieces=st.lists(st.text(max_size=12), max_size=20),
    chars=st.integers(0, 15),
    judged=st.lists(st.booleans(), min_size=20, max_size=20),
)
def test_everything_goes_once_and_in_order(
    pieces: list[str], chars: int, judged: list[bool]
) -> None:
    """Whenever it is judged; and what was sent never runs ahead of what was judged."""
    hold, gone, read = HoldBack(chars), [], ""
    for number, (piece, is_time) in enumerate(zip(pieces, judged, strict=False)):
        hold.take(str(number), event(piece))
        if is_time or hold.is_due:
            read += "".join(hold.take_unjudged().values())
        gone += hold.release()
        assert not chars or len(hold.sent) <= max(0, len(read) - chars)
    read += "".join(hold.take_unjudged().values())
    gone += hold.release(everything=True)
    assert gone == [str(number) for number in range(len(pieces))]
    assert read == hold.text == hold.sent == "".join(pieces)


@pytest.mark.parametrize("delta", [{"content": "a"}, {"reasoning": "a"}, {"refusal": "a"}])
def test_a_chunk_of_any_field_counts(delta: dict) -> None:
    """What the format shows is what is held back."""
    data = json.dumps({"choices": [{"index": 0, "delta": delta}]})
    read = ChatWire().read_event(data)
    assert read is not None
    hold = HoldBack(1)
    hold.take(data, read)
    assert hold.take_unjudged() == {0: "a"}
