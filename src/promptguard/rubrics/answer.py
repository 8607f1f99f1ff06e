"""How one answer is given: which side it takes, and how firmly."""

from __future__ import annotations

from dataclasses import dataclass

from promptguard.rubrics.folding import fold
from promptguard.rubrics.language import language_of, shows_language
from promptguard.rubrics.patterns import Kind, shipped_patterns
from promptguard.rubrics.position import Position, read_position


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReading:
    """One answer by itself: hedged where it refuses a side in words, hesitant where it doubts."""

    position: Position
    is_hedged: bool = False
    is_hesitant: bool = False


def read_answer(answer: str, *, asked: str = "") -> AnswerReading:
    """Return how `answer` answers what was `asked`; unclear in a language without rules."""
    patterns = shipped_patterns()
    language = language_of(
        answer if shows_language(answer, patterns) else f"{asked}\n{answer}", patterns
    )
    if language is None:
        return AnswerReading(position=Position.UNCLEAR)
    reading = read_position(answer, language, asked=asked, window_chars=patterns.window_chars)
    opening = fold(answer[: patterns.window_chars])
    return AnswerReading(
        position=reading.position,
        is_hedged=reading.kind is Kind.HEDGE,
        is_hesitant=language.hesitation.fits(opening),
    )
