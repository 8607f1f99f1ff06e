"""A linear table over tokens and neighbouring tokens, read beside the encoder.

The encoder knows what a sentence is about; the table knows wording. Their errors differ, so that
their sum is better than either. Training and serving both count tokens here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

BITS = 18
SIZE = 1 << BITS
_FIRST, _SECOND, _ALONE, _MIX = (
    np.uint64(number)
    for number in (
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0xBF58476D1CE4E5B9,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WordPairs:
    """One row per output, one column per bucket; `units` is what a 1 in each row is worth."""

    table: npt.NDArray[np.int8]
    units: npt.NDArray[np.float32]

    def logits(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return what the wording adds to each output's logit."""
        found = buckets(ids)
        if not len(found):
            return np.zeros(len(self.units), dtype=np.float32)
        sums = self.table[:, found].sum(axis=1, dtype=np.float32)
        return np.asarray(sums * self.units / np.sqrt(len(found)), dtype=np.float32)


def load_word_pairs(path: Path) -> WordPairs:
    """Read a table; raises what numpy raises where the file is broken."""
    with np.load(path, allow_pickle=False) as held:
        found = WordPairs(table=held["table"], units=held["units"])
    if found.table.dtype != np.int8 or found.table.shape != (len(found.units), SIZE):
        raise ValueError("not a table of word pairs")
    return found


def buckets(ids: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the distinct buckets of a text's tokens and of its neighbouring pairs."""
    tokens = np.asarray(ids, dtype=np.uint64)
    mixed = np.concatenate([tokens * _ALONE, (tokens[:-1] * _FIRST) ^ (tokens[1:] * _SECOND)])
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MIX
    mixed ^= mixed >> np.uint64(32)
    return np.unique(mixed & np.uint64(SIZE - 1)).astype(np.int64)
