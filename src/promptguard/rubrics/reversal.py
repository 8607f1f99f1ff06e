"""A later answer that goes back on an earlier one, found by the rules or by a reader of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from promptguard.conversation import AnswerPair
from promptguard.rubrics.turns import Turn

MAX_PAIRS = 24
"""Most pairs of one conversation that a reader is asked about, so that its cost has a bound."""
_COUNTS, _HINTS = "reversal", "reversal_hint"
_Places = tuple[int, int]
ReadAnswers = Callable[[Sequence[AnswerPair]], Sequence[float]]
"""Returns of each pair how probable it is that the later answer takes the earlier one back."""


class Ground(StrEnum):
    """Who found what a verdict rests on."""

    RULES = "rules"
    READER = "reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reversal:
    """Two turns, the later of which goes back on the earlier.

    `probability` is the reader's where it found the reversal, and None where the rules did.
    """

    first: Turn
    second: Turn
    probability: float | None = None

    @property
    def ground(self) -> Ground:
        """Who found it."""
        return Ground.RULES if self.probability is None else Ground.READER


@dataclass(frozen=True, slots=True, kw_only=True)
class ReversalReader:
    """A reader of pairs of answers, and what its probabilities are worth.

    From `counts_from` on a pair is a reversal, from `hints_from` on it is a hint.
    """

    read: ReadAnswers
    counts_from: float
    hints_from: float


class AnswerReader(Protocol):
    """The embedded readers as the rubric sees them."""

    @property
    def has_reversal(self) -> bool:
        """Whether they can read pairs of answers."""

    @property
    def thresholds(self) -> Mapping[str, float]:
        """The probabilities from which on something counts, by name."""

    def read_answers(self, pairs: Sequence[AnswerPair]) -> tuple[float, ...]:
        """Return of each pair how probable it is that the later answer takes the other back."""


def reverses_by(readers: AnswerReader) -> ReversalReader | None:
    """Return the readers with their own thresholds; None where they cannot tell a reversal."""
    if not readers.has_reversal or _COUNTS not in readers.thresholds:
        return None
    counts_from = readers.thresholds[_COUNTS]
    hints_from = readers.thresholds.get(_HINTS, counts_from)
    return ReversalReader(read=readers.read_answers, counts_from=counts_from, hints_from=hints_from)


def read_reversals(
    turns: Sequence[Turn], reader: ReversalReader
) -> tuple[list[Reversal], list[Reversal]]:
    """Return the reversals that count and those that are a hint, the most probable first."""
    pairs = [(turns[earlier], turns[later]) for earlier, later in compared(len(turns))]
    probabilities = reader.read(
        [
            AnswerPair(asked=a.asked, earlier=a.answer, pressed=b.asked, later=b.answer)
            for a, b in pairs
        ]
    )
    read = [
        (probability, Reversal(first=first, second=second, probability=probability))
        for probability, (first, second) in zip(probabilities, pairs, strict=True)
    ]
    read.sort(key=lambda each: each[0], reverse=True)
    counted = [one for probability, one in read if probability >= reader.counts_from]
    hints = [one for p, one in read if reader.hints_from <= p < reader.counts_from]
    return counted, hints


def compared(count: int, most: int = MAX_PAIRS) -> list[_Places]:
    """Return which of `count` answers are read together, at most `most` pairs, by the later one.

    First each answer with the first one, which a long talk drifts away from, and each with the
    one before it, which was on the same subject; of either kind at most half. Then each with the
    one two before it, and so on. Where a kind does not fit it is spread over the conversation.
    """
    half = most // 2
    chosen = _spread([(0, later) for later in range(1, count)], half)
    for gap in range(1, count - 1):
        near = [(later - gap, later) for later in range(gap + 1, count)]
        chosen += _spread(near, min(half, most - len(chosen)))
        if len(chosen) >= most:
            break
    return sorted(chosen, key=lambda pair: (pair[1], pair[0]))


def _spread(pairs: Sequence[_Places], most: int) -> list[_Places]:
    """Return at most `most` of the pairs, evenly, with the last one: there a talk has arrived."""
    if len(pairs) <= most:
        return list(pairs)
    return [pairs[len(pairs) - 1 - at * len(pairs) // most] for at in range(most)]
