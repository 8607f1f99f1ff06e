"""Resent, trimmed, regenerated, dropped and rewritten histories, compared with the store."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_values import make_entry

from promptguard.conversation import ComparableMessage, Role, content_hash
from promptguard.service.history import HistoryKind, compare, split_new, steps_in, whole_turns
from promptguard.state import TranscriptEntry
from promptguard.verdict import Action, ContentFinding, Verdict

ROLES = {"u": Role.USER, "a": Role.ASSISTANT, "t": Role.TOOL}


def said(*items: str) -> tuple[ComparableMessage, ...]:
    """`u:text`, `a:text` or `t:text` each."""
    return tuple(ComparableMessage.of(ROLES[item[0]], item[2:]) for item in items)


def stored(*turns: tuple[str, ...], blocked: tuple[int, ...] = ()) -> list[TranscriptEntry]:
    """One tuple of items per turn."""
    entries: list[TranscriptEntry] = []
    for number, items in enumerate(turns, start=1):
        for at, item in enumerate(items):
            action = Action.BLOCK if number in blocked else Action.ALLOW
            entries.append(
                make_entry(
                    item[2:],
                    position=len(entries),
                    turn=number,
                    role=ROLES[item[0]],
                    content_hash=content_hash(item[2:]),
                    verdict=Verdict(turn=number, action=action).to_json() if at == 0 else "",
                )
            )
    return entries


TWO = (("u:A", "a:R1"), ("u:B", "a:R2"))


def texts(items) -> list[str]:
    return [item.content for item in items]


@pytest.mark.parametrize(
    ("incoming", "turns", "kind", "new", "unseen"),
    [
        (("u:A",), (), "first", ["A"], []),
        (("u:A", "a:R", "u:B"), (), "first", ["B"], ["A", "R"]),
        (("u:A", "a:R1", "u:B", "a:R2", "u:C"), TWO, "intact", ["C"], []),
        (("u:B", "a:R2", "u:C"), TWO, "intact", ["C"], []),
        (("u:C",), TWO, "not_resent", ["C"], []),
        (("u:A", "u:B", "u:C"), TWO, "not_resent", ["C"], []),
        (("u:A", "a:R1", "u:B"), TWO, "regenerated", ["B"], []),
        (("u:A", "a:R1", "u:X"), TWO, "dropped", ["X"], []),
        (("u:A", "a:FAKE", "u:B", "a:R2", "u:C"), TWO, "rewritten", ["C"], ["FAKE"]),
        (("u:A2", "a:R1", "u:B", "a:R2", "u:C"), TWO, "rewritten", ["C"], ["A2"]),
        (("u:A", "a:R1", "u:B", "a:R2", "u:X", "a:Y", "u:C"), TWO, "rewritten", ["C"], ["X", "Y"]),
        (("u:B", "a:R2", "u:A", "a:R1", "u:C"), TWO, "rewritten", ["C"], ["B", "R2"]),
        (("u:A", "a:R1", "u:B"), (("u:A", "a:R1"), ("u:B",)), "retried", ["B"], []),
        (("u:A", "a:R1", "u:B", "u:C"), (("u:A", "a:R1"), ("u:B",)), "intact", ["C"], []),
        (("u:A", "a:FAKE", "u:B"), (("u:A", "a:R1"), ("u:B",)), "rewritten", ["B"], ["FAKE"]),
        (("u:A", "u:B", "a:R", "u:C"), (("u:A\nB", "a:R"),), "intact", ["C"], []),
        (("t:D", "u:A", "a:R", "u:C"), (("u:A", "t:D", "a:R"),), "intact", ["C"], []),
        (("u:A", "t:D"), (("u:A", "a:"),), "not_resent", ["D"], []),
        (("u:A", "t:D", "a:R", "u:B"), (("u:A", "a:"), ("u:", "t:D", "a:R")), "intact", ["B"], []),
        (
            ("u:A", "a:R1", "u:B2", "a:R3", "u:C"),
            (*TWO, ("u:B2", "a:R3")),
            "intact",
            ["C"],
            [],
        ),
    ],
)
def test_kinds_of_history(incoming, turns, kind, new, unseen) -> None:
    """What is new, what was never seen, and what kind of history it is."""
    found = compare(said(*incoming), stored(*turns))
    assert (found.kind.value, texts(found.new), texts(found.unseen)) == (kind, new, unseen)


def test_words_put_into_the_assistants_mouth_are_new() -> None:
    """A prefilled answer at the end is part of what is judged."""
    history, new = split_new(said("u:A", "a:R", "u:B", "a:Sure, here is"))
    assert texts(history) == ["A", "R"]
    assert texts(new) == ["B", "Sure, here is"]


def test_an_answer_broken_off_by_the_client_is_the_same_answer() -> None:
    """A client that stopped the stream has less than was sent; adding to it is a rewrite."""
    turns = (("u:A", "a:It is a long answer."),)
    assert compare(said("u:A", "a:It is a long", "u:B"), stored(*turns)).kind == "intact"
    assert compare(said("u:A", "a:It", "u:B"), stored(*turns)).kind == "rewritten"
    longer = said("u:A", "a:It is a long answer. Sure, step one", "u:B")
    assert compare(longer, stored(*turns)).kind == "rewritten"


def test_a_client_that_got_an_error_has_no_refusal_to_resend() -> None:
    """Where blocks are errors, the blocked exchange may be missing."""
    turns = (("u:A", "a:R1"), ("u:bad", "a:No."))
    incoming = said("u:A", "a:R1", "u:C")
    assert compare(incoming, stored(*turns, blocked=(2,))).kind == "dropped"
    shown = compare(incoming, stored(*turns, blocked=(2,)), hides_refusals=True)
    assert shown.kind == "intact"
    kept = compare(
        said("u:A", "a:R1", "u:bad", "u:C"), stored(*turns, blocked=(2,)), hides_refusals=True
    )
    assert (kept.kind, texts(kept.new)) == ("intact", ["C"])


def test_an_answer_never_told_is_learned() -> None:
    """Beside the traffic, the answer comes with the next turn."""
    turns = (("u:A",),)
    found = compare(said("u:A", "a:R1", "u:B"), stored(*turns), learns_replies=True)
    assert (found.kind, found.learned, texts(found.new)) == ("intact", "R1", ["B"])
    in_the_way = compare(said("u:A", "a:R1", "u:B"), stored(*turns))
    assert in_the_way.kind == "rewritten"


def test_without_stored_hashes_nothing_is_claimed() -> None:
    """With store_text off there is nothing to compare with."""
    assert compare(said("u:X", "a:Y", "u:B"), [make_entry(None)]).kind is HistoryKind.NOT_RESENT


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), min_size=1, max_size=8),
    st.integers(0, 7),
)
def test_an_honest_client_is_never_accused(exchanges, trimmed) -> None:
    """Whatever was said, however often the same: whole or trimmed, it is intact."""
    turns = [(f"u:{question}", f"a:{answer}") for question, answer in exchanges]
    flat = [item for turn in turns for item in turn]
    kept = flat[2 * min(trimmed, len(turns) - 1) :]
    found = compare(said(*kept, "u:new"), stored(*turns))
    assert found.kind is HistoryKind.INTACT
    assert texts(found.new) == ["new"]


@given(
    st.lists(st.sampled_from(["u:a", "u:b", "a:c", "a:d", "t:e", "u:"]), max_size=12),
    st.lists(st.lists(st.sampled_from(["u:a", "u:b", "t:e", "a:c"]), max_size=3), max_size=5),
)
def test_any_two_histories_can_be_compared(incoming, turns) -> None:
    """No pair is too odd, and what is new or unseen was really in the request."""
    messages = said(*(item for item in incoming if item[2:]))
    found = compare(messages, stored(*(tuple(turn) for turn in turns)))
    assert all(item in messages for item in (*found.new, *found.unseen))


@given(
    st.lists(st.sampled_from(["u:a", "u:b", "a:c", "a:d", "t:e", "u:evil"]), max_size=12),
    st.lists(st.lists(st.sampled_from(["u:a", "u:b", "t:e", "a:c"]), min_size=1, max_size=3)),
    st.booleans(),
)
def test_nothing_slips_past_the_judge(incoming, turns, learns) -> None:
    """Every user and tool text is new, unseen and therefore judged, or was judged before."""
    messages = said(*incoming)
    entries = stored(*(tuple(turn) for turn in turns))
    found = compare(messages, entries, learns_replies=learns)
    before = {entry.content_hash for entry in entries}
    judged = {item.digest for item in (*found.new, *found.unseen)}
    assert {item.digest for item in messages if item.role is not Role.ASSISTANT} <= before | judged


def with_content(entries: list[TranscriptEntry], origin: str, action: Action) -> None:
    """Append a turn whose one content came from `origin`."""
    finding = ContentFinding(index=0, origin=origin, risk=0.9, action=action)
    verdict = Verdict(turn=9, action=action, content=(finding,)).to_json()
    for role, text, stored_verdict in (("u", "Q", verdict), ("t", "D", ""), ("a", "R", "")):
        entries.append(
            make_entry(
                text,
                position=len(entries),
                turn=9,
                role=ROLES[role],
                content_hash=content_hash(text),
                verdict=stored_verdict,
            )
        )


def test_fields_beside_the_messages_are_no_history() -> None:
    """A tool that is described no more was not dropped from the conversation."""
    for origin, kind in (("tools[0]", "intact"), ("tool", "dropped")):
        entries = stored(("u:A", "a:R1"))
        with_content(entries, origin, Action.ALLOW)
        assert compare(said("u:A", "a:R1", "u:Q", "a:R", "u:B"), entries).kind == kind


def test_the_end_of_a_transcript_begins_with_a_whole_turn() -> None:
    """Of a turn that is cut in two nobody could say what was stripped."""
    entries = stored(("u:A", "a:R1"))
    with_content(entries, "tool", Action.STRIP)
    assert list(whole_turns(entries[-3:])) == entries[-3:]
    assert not whole_turns(entries[-2:])
    assert not whole_turns(())


def test_what_was_stripped_is_remembered() -> None:
    """Its digest comes with the comparison, so that it is taken out whenever it is resent."""
    entries = stored(("u:A", "a:R1"))
    with_content(entries, "tool", Action.STRIP)
    found = compare(said("u:A", "a:R1", "u:Q", "t:D", "a:R", "u:B"), entries)
    assert (found.kind, found.stripped) == ("intact", {content_hash("D")})


def test_many_answers_to_one_message_take_linear_time() -> None:
    """A body of eight megabytes held the service up for two seconds."""
    asked, answer = said("u:hi")[0], ComparableMessage.of(Role.ASSISTANT, "a" * 4000)
    messages = [asked, *[answer] * 5000, asked]
    start = time.process_time()
    first, _ = steps_in(compare(messages, ()), "", 10**9)
    assert time.process_time() - start < 4
    assert len(first.reply or "") > 5000 * 4000
