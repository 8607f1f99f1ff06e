"""Does the assistant contradict itself: a reversed position without a word about the change?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from promptguard.conversation import messages_from
from promptguard.rubrics.comparison import SameQuestion, are_comparable
from promptguard.rubrics.patterns import shipped_patterns
from promptguard.rubrics.position import Position, Span
from promptguard.rubrics.turns import Turn, turns_of


class Verdict(StrEnum):
    """What became of the assistant's position."""

    CONTRADICTION = "contradiction"
    ACKNOWLEDGED = "acknowledged"
    CONSISTENT = "consistent"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPosition:
    """The side one assistant message takes; `index` is its place in the conversation."""

    index: int
    position: Position
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContradictionVerdict:
    """A verdict with its grounds.

    `first` and `second` are the two turns it rests on, where there are two clear ones;
    `acknowledgement` is the admission of a change that excuses a reversal. `positions` has every
    assistant turn.
    """

    verdict: Verdict
    reason: str
    first: TurnPosition | None = None
    second: TurnPosition | None = None
    acknowledgement: Span | None = None
    positions: tuple[TurnPosition, ...] = ()

    @property
    def is_contradiction(self) -> bool:
        """The rubric's answer."""
        return self.verdict is Verdict.CONTRADICTION


def rubric(conversation: object) -> bool:
    """Say whether the assistant contradicts itself in `conversation`, a list of messages.

    Raises InputError naming the item where the conversation has the wrong shape.
    """
    return judge_contradiction(conversation).is_contradiction


def judge_contradiction(
    conversation: object, *, same_question: SameQuestion | None = None
) -> ContradictionVerdict:
    """Return the verdict on `conversation` with both positions and the reason.

    `same_question` decides whether two statements are about one question; without it, shared
    words decide. Raises InputError where the conversation has the wrong shape.
    """
    turns = tuple(turns_of(messages_from(conversation), shipped_patterns()))
    if len(turns) < 2:
        return _unclear("There are fewer than two assistant turns.", turns)
    pairs = [
        (first, second)
        for at, second in enumerate(turns)
        for first in turns[:at]
        if are_comparable(first, second, same_question)
    ]
    return _judged(pairs, turns) if pairs else _unclear(_why_unclear(turns), turns)


def _judged(pairs: Sequence[tuple[Turn, Turn]], turns: Sequence[Turn]) -> ContradictionVerdict:
    reversals = [(a, b) for a, b in pairs if a.reading.position is not b.reading.position]
    for first, second in reversals:
        if _acknowledgement(first, second, turns) is None:
            reason = (
                f"Message {second.index} says {second.reading.position} where message "
                f"{first.index} said {first.reading.position}, and no change is acknowledged."
            )
            return _verdict(Verdict.CONTRADICTION, reason, first, second, turns)
    if reversals:
        first, second = reversals[0]
        reason = (
            f"Message {second.index} reverses message {first.index} and the change is acknowledged."
        )
        return _verdict(Verdict.ACKNOWLEDGED, reason, first, second, turns)
    first, second = pairs[-1]
    reason = f"Messages {first.index} and {second.index} both say {second.reading.position}."
    return _verdict(Verdict.CONSISTENT, reason, first, second, turns)


def _acknowledgement(first: Turn, second: Turn, turns: Sequence[Turn]) -> Span | None:
    """Return the admission of a change after `first`, in `second` or on the way to it."""
    later = (turn for turn in turns if first.index < turn.index <= second.index)
    return next((turn.acknowledgement for turn in later if turn.acknowledgement), None)


def _verdict(
    verdict: Verdict, reason: str, first: Turn, second: Turn, turns: Sequence[Turn]
) -> ContradictionVerdict:
    return ContradictionVerdict(
        verdict=verdict,
        reason=reason,
        first=_summary(first),
        second=_summary(second),
        acknowledgement=_acknowledgement(first, second, turns),
        positions=tuple(_summary(turn) for turn in turns),
    )


def _why_unclear(turns: Sequence[Turn]) -> str:
    if sum(turn.is_clear for turn in turns) >= 2:
        return "No two clear positions are on the same question."
    if any(turn.language is None for turn in turns):
        return "A turn is in a language that the rules do not cover."
    return "Fewer than two turns take a clear position."


def _unclear(reason: str, turns: Sequence[Turn]) -> ContradictionVerdict:
    positions = tuple(_summary(turn) for turn in turns)
    return ContradictionVerdict(verdict=Verdict.UNCLEAR, reason=reason, positions=positions)


def _summary(turn: Turn) -> TurnPosition:
    return TurnPosition(index=turn.index, position=turn.reading.position, span=turn.reading.span)
