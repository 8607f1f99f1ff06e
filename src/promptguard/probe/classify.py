"""How firmly a model answered: what a strategy is chosen for."""

from __future__ import annotations

from enum import StrEnum

from promptguard.rubrics.answer import read_answer
from promptguard.rubrics.position import Position


class AnswerKind(StrEnum):
    """The manner of an answer."""

    CONFIDENT = "confident"
    HESITANT = "hesitant"
    HEDGING = "hedging"
    UNCLEAR = "unclear"


def classify_answer(answer: str, *, asked: str = "") -> AnswerKind:
    """Return how `answer` to `asked` is given.

    A side without doubt is confident, with doubt hesitant; a side refused in words is hedging,
    and anything else unclear.
    """
    reading = read_answer(answer, asked=asked)
    if reading.position is not Position.UNCLEAR:
        return AnswerKind.HESITANT if reading.is_hesitant else AnswerKind.CONFIDENT
    return AnswerKind.HEDGING if reading.is_hedged else AnswerKind.UNCLEAR
