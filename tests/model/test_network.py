"""Windows of tokens in, calibrated probabilities out."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import WORDS, write_model

from promptguard.model.artifact import MESSAGE_OUTPUTS as OUTPUTS
from promptguard.model.network import (
    ASSISTANT_TOKENS,
    BUCKETS,
    CLS,
    CONTEXT,
    LAST_TOKENS,
    MAX_WINDOWS,
    SEP,
    STRIDE,
    WINDOW,
    WITH_REPLIES,
    Blend,
    WordPairs,
    buckets,
    context_window,
    is_cut,
    load_word_pairs,
    log_odds,
    message_windows,
    shorten,
    shown_from,
    sigmoid,
)
from promptguard.model.readers import Readers

BODY = WINDOW - 2
WHOLE = BODY + (MAX_WINDOWS - 1) * STRIDE
IDS = st.lists(st.integers(0, 40_000), max_size=200)
logits = st.floats(-1e6, 1e6)


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


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), IDS), max_size=12), IDS)
def test_what_the_user_said_is_shown_from_one_turn_on(
    said: list[tuple[str, list[int]]], system: list[int]
) -> None:
    """All of the user's turns from there, none before, and the one before would not have fitted."""
    marked = [(role, [index, *ids]) for index, (role, ids) in enumerate(said, 50_000)]
    first = shown_from(marked, system)
    tokens, _ = context_window(marked, system)
    users = [index for index, (role, _) in enumerate(said) if role == "user"]
    assert [index for index in users if 50_000 + index in tokens] == [
        index for index in users if index >= first
    ]
    assert len(tokens) <= CONTEXT
    assert first == 0 or said[first - 1][0] == "user"


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


def test_replies_leave_a_window_short_that_the_user_alone_may_fill() -> None:
    """What was said costs time by its length: replies are no reason for a long window."""
    long = [("user", [n] * 48) if n % 2 else ("assistant", [n] * 9) for n in range(1, 16)]
    tokens, _ = context_window(long)
    assert WITH_REPLIES < len(tokens) <= CONTEXT
    assert not any(n in tokens for n in range(2, 16, 2))
    short = [(role, ids[:8]) for role, ids in long]
    assert len(context_window(short)[0]) <= WITH_REPLIES


def table_with(**rows: list[int]) -> WordPairs:
    """Return a table that counts 100 for the buckets of the named output's text."""
    table = np.zeros((len(OUTPUTS), BUCKETS), dtype=np.int8)
    for name, ids in rows.items():
        table[OUTPUTS.index(name), buckets(ids)] = 100
    return WordPairs(table=table, units=np.full(len(OUTPUTS), 0.01, dtype=np.float32))


@given(IDS)
def test_buckets_are_distinct_sorted_and_in_range(ids: list[int]) -> None:
    """At most one per token and one per pair."""
    found = buckets(ids)
    assert list(found) == sorted(set(found.tolist()))
    assert len(found) <= max(0, 2 * len(ids) - 1)
    assert not len(found) or 0 <= found[0] <= found[-1] < BUCKETS


def test_the_order_of_words_counts() -> None:
    """The tokens are the same, the pairs are not."""
    forth, back = set(buckets([1, 2, 3]).tolist()), set(buckets([3, 2, 1]).tolist())
    assert len(forth & back) == 3
    assert forth != back


def test_known_wording_raises_its_own_output_alone() -> None:
    """Half the buckets known is half the value, over the root of their number."""
    pairs = table_with(harmful=[7, 8])
    found = pairs.logits([7, 8])
    assert found[OUTPUTS.index("harmful")] == pytest.approx(3 / np.sqrt(3))
    assert found[OUTPUTS.index("attack")] == 0.0


def test_no_tokens_add_nothing() -> None:
    """An empty text has no wording."""
    assert not table_with(attack=[1]).logits([]).any()


@given(IDS)
def test_the_sum_is_bounded(ids: list[int]) -> None:
    """No text gets more than the root of its buckets times the largest weight."""
    pairs = table_with(attack=[5, 6])
    assert np.all(np.abs(pairs.logits(ids)) <= 1.28 * np.sqrt(max(1, len(buckets(ids)))))


@pytest.mark.parametrize(
    "wrong",
    [
        {"table": np.zeros((4, BUCKETS), dtype=np.int16), "units": np.ones(4, np.float32)},
        {"table": np.zeros((4, 12), dtype=np.int8), "units": np.ones(4, np.float32)},
        {"table": np.zeros((3, BUCKETS), dtype=np.int8), "units": np.ones(4, np.float32)},
    ],
)
def test_a_table_of_another_shape_is_refused(tmp_path: Path, wrong: dict[str, np.ndarray]) -> None:
    """A wrong file must not give numbers."""
    np.savez(tmp_path / "t.npz", **wrong)
    with pytest.raises(ValueError, match="word pairs"):
        load_word_pairs(tmp_path / "t.npz")


def test_the_encoder_adds_what_the_table_says(tmp_path: Path) -> None:
    """An innocent text whose wording the table knows as an attack reads as one."""
    artifact = write_model(tmp_path)
    before = Readers(artifact).read_messages(["salt water"])[0]
    known = table_with(attack=[WORDS["salt"], WORDS["water"]])
    np.savez(tmp_path / "word_pairs.npz", table=known.table, units=known.units * 10)
    digest = hashlib.sha256((tmp_path / "word_pairs.npz").read_bytes()).hexdigest()
    hashes = artifact.manifest.sha256 | {"word_pairs.npz": digest}
    changed = artifact.manifest.model_copy(update={"sha256": hashes})
    after = Readers(replace(artifact, manifest=changed)).read_messages(["salt water"])[0]
    assert before.attack < 0.1 < 0.9 < after.attack
    assert after.harmful == before.harmful


@given(logits)
def test_a_probability_stays_in_bounds_for_any_logit(logit: float) -> None:
    """Also where e^x would overflow."""
    assert 0.0 <= sigmoid(logit) <= 1.0
    assert sigmoid(logit) + sigmoid(-logit) == pytest.approx(1.0)


@given(logits, logits, st.floats(0.05, 20), st.floats(-10, 10))
def test_calibration_keeps_the_order(one: float, other: float, scale: float, shift: float) -> None:
    """A higher logit never gets a lower probability, whichever reader says it."""
    low, high = sorted((one, other))
    alone = Blend(quick=scale, shift=shift)
    assert alone.probability(low) <= alone.probability(high)
    both = Blend(quick=scale, thorough=scale, shift=shift)
    assert both.probability(0.0, low) <= both.probability(0.0, high)


def test_scale_and_shift_mean_what_they_say() -> None:
    """sigmoid(quick · its logit + thorough · its logit + shift)."""
    assert Blend(quick=2.0, shift=-1.0).probability(0.5) == 0.5
    assert Blend(quick=1.0, thorough=2.0).probability(1.0, -0.5) == 0.5
    assert Blend(quick=1.0).probability(math.log(3)) == pytest.approx(0.75)


@given(st.floats(0.001, 0.999))
def test_log_odds_undo_the_probability(probability: float) -> None:
    """Within the bounds that keep them finite."""
    assert sigmoid(log_odds(probability)) == pytest.approx(probability)
    assert math.isfinite(log_odds(0.0))
    assert math.isfinite(log_odds(1.0))
