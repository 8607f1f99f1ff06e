"""How token ids become windows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from promptguard.model.cutting import (
    ASSISTANT_TOKENS,
    CLS,
    CONTEXT,
    LAST_TOKENS,
    MAX_WINDOWS,
    SEP,
    STRIDE,
    WINDOW,
    context_window,
    is_cut,
    message_windows,
    shorten,
)

BODY = WINDOW - 2
WHOLE = BODY + (MAX_WINDOWS - 1) * STRIDE


@given(st.integers(0, WHOLE))
def test_every_token_of_a_message_within_the_bound_is_in_some_window(length: int) -> None:
    """Nothing is left out, and the windows follow the text."""
    ids = list(range(1000, 1000 + length))
    windows = message_windows(ids)
    assert {token for window in windows for token in window[1:-1]} == set(ids)
    assert all(window[0] == CLS and window[-1] == SEP for window in windows)
    assert all(len(window) <= WINDOW for window in windows)
    assert not is_cut(length)


@given(st.integers(WHOLE + 1, WHOLE * 3))
def test_a_longer_message_is_sampled_with_its_beginning_and_end(length: int) -> None:
    """The bound on windows holds, and the reading will say that it was cut."""
    ids = list(range(length))
    windows = message_windows(ids)
    assert is_cut(length)
    assert len(windows) == MAX_WINDOWS
    assert (windows[0][1], windows[-1][-2]) == (0, length - 1)


def test_an_empty_message_is_one_empty_window() -> None:
    """So that it has a reading at all."""
    assert message_windows([]) == [[CLS, SEP]]


@given(st.integers(1, 500), st.integers(1, 200))
def test_shortening_keeps_head_and_tail(length: int, limit: int) -> None:
    """The end of a turn often holds what is asked."""
    kept = shorten(list(range(length)), limit)
    assert len(kept) == min(length, limit)
    assert kept == sorted(kept)
    assert kept[-1] == length - 1


def test_a_conversation_is_laid_out_newest_last_with_its_speakers() -> None:
    """Speaker 1 is the assistant."""
    tokens, speakers = context_window([("user", [5, 6]), ("assistant", [7]), ("user", [8])])
    assert tokens == [CLS, 5, 6, SEP, 7, SEP, 8, SEP]
    assert speakers == [0, 0, 0, 0, 1, 1, 0, 0]


def test_a_long_conversation_loses_its_oldest_turns() -> None:
    """The newest message has most room."""
    said = [("user", [n] * 400) if n % 2 else ("assistant", [n] * 400) for n in range(1, 40)]
    tokens, speakers = context_window(said)
    assert len(tokens) == len(speakers) <= CONTEXT
    assert tokens.count(39) == LAST_TOKENS
    assert 1 not in tokens


def test_what_the_user_said_has_the_room_before_the_replies() -> None:
    """Replies fill what is left, those to the newest turns first, and stand where they were."""
    said = [("user", [n] * 13) if n % 2 else ("assistant", [n] * 400) for n in range(1, 20)]
    tokens, speakers = context_window(said)
    assert len(tokens) == len(speakers) <= CONTEXT
    assert all(n in tokens for n in range(1, 20, 2))
    assert [n for n in range(2, 20, 2) if n in tokens] == [14, 16, 18]
    assert tokens.count(18) == ASSISTANT_TOKENS
    assert tokens.index(17) < tokens.index(18) < tokens.index(19)
    assert speakers[tokens.index(18)] == 1
