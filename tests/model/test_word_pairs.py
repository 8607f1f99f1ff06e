"""The table of tokens and neighbouring tokens."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import WORDS, write_model

from promptguard.model.artifact import MESSAGE_OUTPUTS as OUTPUTS
from promptguard.model.readers import Readers
from promptguard.model.word_pairs import SIZE, WordPairs, buckets, load_word_pairs

IDS = st.lists(st.integers(0, 40_000), max_size=200)


def table_with(**rows: list[int]) -> WordPairs:
    """Return a table that counts 100 for the buckets of the named output's text."""
    table = np.zeros((len(OUTPUTS), SIZE), dtype=np.int8)
    for name, ids in rows.items():
        table[OUTPUTS.index(name), buckets(ids)] = 100
    return WordPairs(table=table, units=np.full(len(OUTPUTS), 0.01, dtype=np.float32))


@given(IDS)
def test_buckets_are_distinct_sorted_and_in_range(ids: list[int]) -> None:
    """At most one per token and one per pair."""
    found = buckets(ids)
    assert list(found) == sorted(set(found.tolist()))
    assert len(found) <= max(0, 2 * len(ids) - 1)
    assert not len(found) or 0 <= found[0] <= found[-1] < SIZE


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
        {"table": np.zeros((4, SIZE), dtype=np.int16), "units": np.ones(4, np.float32)},
        {"table": np.zeros((4, 12), dtype=np.int8), "units": np.ones(4, np.float32)},
        {"table": np.zeros((3, SIZE), dtype=np.int8), "units": np.ones(4, np.float32)},
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
