"""Message lists cut into exchanges, and what of them a session has not seen."""

import time

import pytest
from stored_values import make_entry

from promptguard.conversation import Message, Role, content_hash
from promptguard.risk.ledger import STRIPPED
from promptguard.state import TranscriptEntry
from promptguard.turns.exchanges import (
    Exchange,
    RecordedTurn,
    exchanges_of,
    prefix_hashes,
    recorded_turns,
    system_of,
    unseen,
    without_withheld,
)
from promptguard.verdict import Action, ContentFinding, Verdict


def said(*pairs: tuple[str, str]) -> list[Message]:
    return [Message(role=Role(role), content=text) for role, text in pairs]


def talk(*texts: str) -> tuple[Exchange, ...]:
    """Return exchanges of users' words that were all answered with "ok" but the last."""
    replies = ["ok"] * (len(texts) - 1) + [None]
    return tuple(Exchange(text=t, reply=r) for t, r in zip(texts, replies, strict=True))


def seen(*texts: str, is_answered: bool = True) -> tuple[RecordedTurn, ...]:
    return tuple(
        RecordedTurn(
            digest=Exchange(text=text).digest,
            is_answered=is_answered,
            verdict=None,
            withheld=frozenset(),
        )
        for text in texts
    )


def texts_of(exchanges: tuple[Exchange, ...]) -> list[str]:
    return [exchange.text for exchange in exchanges]


def test_messages_up_to_an_answer_are_one_exchange() -> None:
    """Users' words are joined, tool results are contents with their places in the list."""
    (first, second) = exchanges_of(
        said(
            ("system", "Be kind."),
            ("user", "hello"),
            ("user", "are you there?"),
            ("tool", "a result"),
            ("assistant", "Yes."),
            ("assistant", "How can I help?"),
            ("tool", "late"),
        )
    )
    assert (first.text, first.contents, first.places) == (
        "hello\nare you there?",
        ("a result",),
        (3,),
    )
    assert first.reply == "Yes.\nHow can I help?"
    assert (second.text, second.contents, second.places, second.reply) == (
        "",
        ("late",),
        (6,),
        None,
    )


@pytest.mark.parametrize("messages", [[], said(("system", "x")), said(("assistant", "Welcome!"))])
def test_a_list_that_asks_nothing_is_one_empty_exchange(messages: list) -> None:
    """There is always a turn to judge, if an empty one."""
    assert exchanges_of(messages) == (Exchange(),)


def test_an_empty_message_before_the_first_words_adds_no_line() -> None:
    """One after them does, as the model sees it."""
    (found,) = exchanges_of(said(("user", ""), ("user", "hello"), ("user", ""), ("assistant", "")))
    assert (found.text, found.reply) == ("hello\n", "")


@pytest.mark.parametrize("role", ["user", "tool"])
def test_many_messages_without_an_answer_take_linear_time(role: str) -> None:
    """A list of eight megabytes holds so many; put together one by one they took a minute."""
    messages = said(*[(role, "a" * 30)] * 100_000)
    start = time.process_time()
    (found,) = exchanges_of(messages)
    assert time.process_time() - start < 5
    assert len(found.text) + sum(map(len, found.contents)) >= 100_000 * 30


def test_a_long_list_is_compared_with_a_long_session_in_linear_time() -> None:
    """Nothing of it known: each exchange is looked up, and not searched for."""
    given = [Exchange(text=f"{n}") for n in range(40_000)]
    stored = [
        RecordedTurn(digest=f"{n}", is_answered=True, verdict=None, withheld=frozenset())
        for n in range(40_000)
    ]
    start = time.process_time()
    assert len(unseen(given, stored)) == 40_000
    assert time.process_time() - start < 3


def test_what_the_application_said_is_kept_apart() -> None:
    """System messages are joined, wherever they stand, empty ones left out."""
    messages = said(("system", "a"), ("user", "hello"), ("system", ""), ("system", "b"))
    assert system_of(messages) == "a\nb"


def test_a_chain_names_each_beginning_of_a_conversation() -> None:
    """Another word anywhere before, another answer or another prompt leads elsewhere."""
    whole = prefix_hashes(talk("a", "b", "c"), "")
    assert prefix_hashes(talk("a", "b"), "") == whole[:2]
    assert len(set(whole)) == 3
    assert prefix_hashes(talk("a", "x", "c"), "")[2] != whole[2]
    assert prefix_hashes(talk("a", "b", "c"), "prompt")[0] != whole[0]
    other = (Exchange(text="a", reply="no"), *talk("b", "c"))
    assert prefix_hashes(other, "")[0] == whole[0]
    assert prefix_hashes(other, "")[1] != whole[1]


def test_what_follows_the_recorded_turns_is_new() -> None:
    """The list may begin at any recorded turn."""
    assert texts_of(unseen(talk("a", "b", "c"), seen("a", "b"))) == ["c"]
    assert texts_of(unseen(talk("b", "c"), seen("a", "b"))) == ["c"]
    assert unseen(talk("a", "b"), seen("a", "b")) == ()


def test_the_same_words_after_an_answer_are_said_anew() -> None:
    """Sent again without an answer, the turn was judged before."""
    again = (Exchange(text="a"),)
    assert texts_of(unseen(again, seen("a"))) == ["a"]
    assert unseen(again, seen("a", is_answered=False)) == ()


def test_a_list_that_does_not_fit_is_new_where_it_is_unknown() -> None:
    """Known turns are not judged twice, the last exchange always is."""
    assert texts_of(unseen(talk("x", "a", "b"), seen("a", "b"))) == ["x", "b"]
    assert texts_of(unseen(talk("x", "y"), ())) == ["x", "y"]


def test_where_no_hashes_are_kept_only_the_last_is_new() -> None:
    """Nothing tells whether the others were judged."""
    forgotten = (RecordedTurn(digest="", is_answered=True, verdict=None, withheld=frozenset()),)
    assert texts_of(unseen(talk("a", "b"), forgotten)) == ["b"]


def test_stored_turns_are_recognised_by_their_hashes() -> None:
    """In the order of turns, with the answer and with the contents that were withheld."""
    finding = ContentFinding(index=0, origin="tool", risk=0.9, action=Action.STRIP)
    verdict = Verdict(turn=1, action=Action.STRIP, content=(finding,))
    entries = [
        _entry(3, 2, Role.USER, "more"),
        _entry(0, 1, Role.USER, "hello", verdict.to_json()),
        _entry(1, 1, Role.TOOL, "poison"),
        _entry(2, 1, Role.ASSISTANT, "ok"),
    ]
    first, second = recorded_turns(entries)
    assert first.digest == Exchange(text="hello", contents=("poison",)).digest
    assert (first.is_answered, first.verdict) == (True, verdict)
    assert first.withheld == {content_hash("poison")}
    assert (second.is_answered, second.verdict, second.withheld) == (False, None, frozenset())


def _entry(position: int, turn: int, role: Role, text: str, verdict: str = "") -> TranscriptEntry:
    digest = content_hash(text)
    return make_entry(
        None, position=position, turn=turn, role=role, content_hash=digest, verdict=verdict
    )


class _Foreign:
    """A message of another library, copied the way pydantic's are."""

    def __init__(self, content: str) -> None:
        self.content = content

    def model_copy(self, *, update: dict[str, str]) -> "_Foreign":
        return _Foreign(**update)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "tool", "content": "x"}, "content"),
        ({"type": "function_call_output", "output": "x"}, "output"),
    ],
)
def test_withheld_dictionaries_get_a_note_in_their_own_field(message: dict, field: str) -> None:
    """The given message stays as it is."""
    before = dict(message)
    noted, kept = without_withheld([message, message], [0])
    assert noted[field] == STRIPPED
    assert kept is message
    assert message == before


def test_withheld_messages_of_any_library_get_a_note() -> None:
    """Ours and others'."""
    ours, theirs = without_withheld([Message(role=Role.TOOL, content="x"), _Foreign("x")], [0, 1])
    assert (ours.content, theirs.content) == (STRIPPED, STRIPPED)
