"""What all stores share: what they refuse, and how turns and labels lie in a table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_values import make_entry, make_record, make_verdict

from promptguard.errors import DataError, InputError, StoreError
from promptguard.protocols import SessionKey, SessionLabel
from promptguard.state import ReplyKind, ReplyRecord, SessionState, TranscriptEntry, TurnRecord
from promptguard.stores.rows import (
    MAX_SESSION_ID,
    TURN_COLUMNS,
    check_key,
    check_save,
    entry_of,
    key_name,
    label_json,
    label_of,
    language_of,
    rows_of,
    turn_of,
    turn_values,
    turns_of,
    verdict_in,
)
from promptguard.verdict import Action, ContentFinding, Evidence, Span

KEY = SessionKey(session_id="ana:s", tenant="t")


def entry(position: int = 0, turn: int = 1, **fields: object) -> TranscriptEntry:
    values = {"content": "How long must the leeks cook?", "content_hash": "h", "timestamp": 61.9}
    return make_entry(position=position, turn=turn, **(values | fields))


def judged(**fields: object) -> str:
    return make_verdict(**({"action": Action.BLOCK, "turn_risk": 0.9} | fields)).to_json()


@pytest.mark.parametrize(
    "key",
    [
        SessionKey(session_id=""),
        SessionKey(session_id="s" * (MAX_SESSION_ID + 1)),
        SessionKey(session_id="a\nb"),
        SessionKey(session_id="\ud800"),
        SessionKey(session_id="s", tenant=""),
        SessionKey(session_id="s", tenant="t\0"),
    ],
)
def test_names_that_a_database_could_not_hold_are_refused(key: SessionKey) -> None:
    """In every store, before it is asked."""
    with pytest.raises(InputError):
        check_key(key)


def test_a_save_names_its_session_and_follows_its_version() -> None:
    """A state that skips a version, or repeats one, is a mistake of the caller."""
    state = SessionState(session_id="s", tenant="t", version=3)
    assert check_save(state, 2) == SessionKey(session_id="s", tenant="t")
    for expected in (3, 1, -1):
        with pytest.raises(StoreError, match="number the state"):
            check_save(state, expected)


@given(content=st.none() | st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF)))
def test_any_text_survives_as_bytes(content: str | None) -> None:
    """Lone surrogates and NUL too, which databases refuse as text."""
    given_entry = entry(content=content, verdict=content or "")
    (row,) = rows_of([given_entry])
    assert entry_of(row) == given_entry


def test_the_later_entry_of_a_position_counts() -> None:
    """As where an answer completes what was begun."""
    rows = rows_of([entry(0, content="a"), entry(1, content="b"), entry(0, content="c")])
    assert [row.content for row in rows] == [b"c", b"b"]


def test_a_judged_turn_is_summed_up_for_lists() -> None:
    """The strongest evidence, without its numbers, so that reasons can be counted."""
    evidence = (
        Evidence(turn=1, signal="fil", nats=1.0, reason="x"),
        Evidence(turn=1, signal="semantic", nats=3.0, reason="attack 0.93 over 4 turns (0.88)"),
        Evidence(turn=1, signal="concepts", nats=-2.0, reason="y"),
    )
    stored = entry(verdict=judged(evidence=evidence, tags=("LLM01",), latency_ms=12.5))
    (turn,) = turns_of(KEY, [stored, entry(1, content="And Soup?"), entry(2, turn=2)])
    assert (turn.signal, turn.reason) == ("semantic", "attack over several turns")
    assert (turn.second, turn.action, turn.tags) == (61, Action.BLOCK, ("LLM01",))
    assert (turn.key, turn.language, turn.latency_ms) == ("ana", "en", 12.5)
    assert turn.words == "how long must the leeks cook?\nand soup?"


@pytest.mark.parametrize(
    ("reason", "listed"),
    [
        ("serves an attack 0.42 over 1 turn", "serves an attack over 1 turn"),
        ("serves an attack 0.42 over 12 turns", "serves an attack over several turns"),
        ("serves an attack 0.42 over 1,200 turns", "serves an attack over several turns"),
        ("turn 4 again, 2 earlier attempts", "an earlier turn again, several earlier attempts"),
        (
            "risky return to turns 0-4 (peak risk 0.60)",
            "risky return to an earlier turn (peak risk)",
        ),
        ("rule EN-12, AML.T0051.000", "rule EN-12, AML.T0051.000"),
    ],
)
def test_reasons_of_a_kind_are_listed_alike(reason: str, listed: str) -> None:
    """Whatever was scored, counted or pointed at; names keep their numbers."""
    evidence = (Evidence(turn=1, signal="semantic", nats=3.0, reason=reason),)
    (turn,) = turns_of(KEY, [entry(verdict=judged(evidence=evidence))])
    assert turn.reason == listed


def test_a_poisoned_content_is_the_reason_where_no_signal_speaks() -> None:
    """Else the fault that kept it from being judged."""
    finding = ContentFinding(index=0, origin="tool", risk=0.9, action=Action.STRIP, reason="orders")
    (turn,) = turns_of(KEY, [entry(verdict=judged(content=(finding,)))])
    assert (turn.signal, turn.reason) == ("content", "orders")
    (turn,) = turns_of(KEY, [entry(verdict=judged(fault="no judge"))])
    assert (turn.signal, turn.reason) == ("", "no judge")


def test_a_verdict_of_another_version_is_no_turn() -> None:
    """One odd row does not break a page."""
    assert turns_of(KEY, [entry(verdict='{"form": "unknown"}')]) == ()
    assert verdict_in('{"form": "unknown"}') is verdict_in(None) is None
    span = Span(start=1, end=3, label="hazard.x")
    found = verdict_in(judged(spans=(span,)))
    assert found is not None
    assert found.spans == (span,)


def test_a_turn_is_read_back_as_it_was_written() -> None:
    """Column by column, with or without tags and words."""
    for fields in ({"tags": ("LLM01", "AML.T0054")}, {}):
        (turn,) = turns_of(KEY, [entry(verdict=judged(**fields))])
        values = turn_values(turn)
        assert len(values) == len(TURN_COLUMNS.split(", "))
        assert turn_of(values) == turn


def test_the_key_is_told_by_the_session_id() -> None:
    """Whole, for two keys may begin alike; what begins a demonstration's id is no key."""
    assert key_name("ana:s") == "ana"
    assert key_name(f"{'a' * 64}:s") == "a" * 64
    assert key_name("no-key") == ""
    assert key_name("demo:crime-novel") == ""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("How do I cook the leeks?", "en"),
        ("Wie lange muss ich den Lauch kochen und was ist mit der Suppe?", "de"),
        ("ネギはどのくらい煮ますか", "ja"),
        ("韭葱要煮多久", "zh"),
        ("파를 얼마나 삶아야 하나요", "ko"),
        ("Сколько варить лук-порей?", "ru"),
        ("", ""),
        ("42", ""),
        ("Zxq", ""),
        ("How do I compute the area 2πr of the lid and the pot?", "en"),
        ("What does the word は mean in this sentence?", "en"),
        ("Windows Serverを再起動する方法", "ja"),
        ("用Python写一个排序函数", "zh"),
    ],
)
def test_a_language_is_guessed_where_the_text_shows_it(text: str, code: str) -> None:
    """By script, then by small words; empty where nothing tells."""
    assert language_of(text) == code


def test_a_label_is_ascii_and_is_read_back() -> None:
    """Whatever a reviewer wrote; what is no label is an error of the data."""
    label = SessionLabel(verdict="attack", author="ána", timestamp=1.5, note="\0 🙂", turn=2)
    assert label_json(label).isascii()
    assert label_of(label_json(label)) == label
    for broken in ("", "[]", '{"verdict": "attack", "other": 1}'):
        with pytest.raises(DataError):
            label_of(broken)


def _turn(number: int, at: float, reply_at: float | None = None) -> TurnRecord:
    reply = None
    if reply_at is not None:
        reply = ReplyRecord(kind=ReplyKind.COMPLIED, excerpt="answer", timestamp=reply_at)
    return make_record(turn=number, excerpt="words", timestamp=at, turn_risk=0.1, reply=reply)


def test_retention_drops_old_words_from_the_state_too() -> None:
    """Turn and answer each by their own time; numbers stay, and the version rises."""
    state = SessionState(
        session_id="s", version=4, recent=(_turn(1, 10.0, 30.0), _turn(2, 40.0, 50.0))
    )
    dropped = state.without_old_text(20.0)
    assert dropped is not None
    assert dropped.version == 5
    assert [t.excerpt for t in dropped.recent] == ["", "words"]
    assert [t.reply.excerpt for t in dropped.recent if t.reply] == ["answer", "answer"]
    assert dropped.recent[0].turn_risk == 0.1
    assert dropped.without_old_text(20.0) is None
