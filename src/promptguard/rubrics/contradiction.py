"""Does the assistant contradict itself: a reversed position without a word about the change?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from promptguard.conversation import Message, Role, messages_from
from promptguard.rubrics.acknowledgement import find_acknowledgement
from promptguard.rubrics.language import is_brief, language_of
from promptguard.rubrics.patterns import Kind, LanguageRules, RubricPatterns, shipped_patterns
from promptguard.rubrics.position import Position, Reading, Span, read_position
from promptguard.rubrics.question import are_opposed, continues, question_in, shared_subject

SameQuestion = Callable[[str, str], bool]
_PREDICATE_CHARS = 40


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
    `acknowledgement` is the admission of a change that excuses a reversal.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One assistant message; `question` is the one still open, put by the user now or before."""

    index: int
    question: str
    asked: str
    answer: str
    language: LanguageRules | None
    reading: Reading
    acknowledgement: Span | None

    @property
    def is_clear(self) -> bool:
        return self.reading.position is not Position.UNCLEAR

    @property
    def has_statement(self) -> bool:
        return self.reading.statement is not None or self.reading.kind is not Kind.LEAD

    @property
    def about(self) -> str:
        return f"{self.question}\n{self.asked}\n{self.answer[: shipped_patterns().window_chars]}"

    def summary(self) -> TurnPosition:
        return TurnPosition(
            index=self.index, position=self.reading.position, span=self.reading.span
        )


def rubric(conversation: object) -> bool:
    """Say whether the assistant contradicts itself in `conversation`, a list of messages.

    Raises InputError naming the item where the conversation has the wrong shape.
    """
    return judge_contradiction(conversation).is_contradiction


def judge_contradiction(
    conversation: object, *, same_question: SameQuestion | None = None
) -> ContradictionVerdict:
    """Return the verdict on `conversation` with both positions and the reason.

    `same_question` decides whether two exchanges are about one question; without it, shared
    words decide. Raises InputError where the conversation has the wrong shape.
    """
    messages = messages_from(conversation)
    turns = tuple(_turns(messages, shipped_patterns()))
    if len(turns) < 2:
        return _unclear("Fewer than two assistant turns.", turns)
    pairs = [
        (first, second)
        for at, second in enumerate(turns)
        for first in turns[:at]
        if _are_comparable(first, second, same_question)
    ]
    if not pairs:
        return _unclear(_why_unclear(turns), turns)
    return _judged(pairs, turns)


def _turns(messages: Sequence[Message], patterns: RubricPatterns) -> Iterator[_Turn]:
    whole = language_of("\n".join(message.content for message in messages), patterns)
    asked: list[str] = []
    question = ""
    for index, message in enumerate(messages):
        if message.role is Role.USER:
            asked.append(message.content)
        elif message.role is Role.ASSISTANT:
            language = _language(message.content, whole, patterns)
            question = _open_question(question, "\n".join(asked), language)
            yield _turn(index, question, "\n".join(asked), message.content, language, patterns)
            asked = []


def _open_question(before: str, asked: str, language: LanguageRules | None) -> str:
    if language is None or (before and continues(asked, language)):
        return before
    return question_in(asked, language)


def _language(
    answer: str, whole: LanguageRules | None, patterns: RubricPatterns
) -> LanguageRules | None:
    opening = answer[: 2 * patterns.window_chars]
    own = language_of(opening, patterns)
    return whole if is_brief(opening) or _is_japanese_in_han(own, whole) else own


def _turn(
    index: int,
    question: str,
    asked: str,
    answer: str,
    language: LanguageRules | None,
    patterns: RubricPatterns,
) -> _Turn:
    if language is None:
        reading, acknowledgement = Reading(position=Position.UNCLEAR), None
    else:
        reading = read_position(answer, language, asked=asked, window_chars=patterns.window_chars)
        acknowledgement = find_acknowledgement(answer, language)
    return _Turn(
        index=index,
        question=question,
        asked=asked,
        answer=answer,
        language=language,
        reading=reading,
        acknowledgement=acknowledgement,
    )


def _is_japanese_in_han(own: LanguageRules | None, whole: LanguageRules | None) -> bool:
    return own is not None and whole is not None and (own.code, whole.code) == ("zh", "ja")


def _are_comparable(first: _Turn, second: _Turn, same_question: SameQuestion | None) -> bool:
    """Say whether two turns take clear sides on one question, put the same way round."""
    language = second.language
    if not (first.is_clear and second.is_clear) or language is None or first.language != language:
        return False
    if (first.reading.kind is Kind.CLAIM) != (second.reading.kind is Kind.CLAIM):
        return False
    if _is_turned_round(first, second, language):
        return False
    if first.question == second.question:
        return True
    if same_question is not None:
        return same_question(first.about, second.about)
    return _shares_subject(first, second, language)


def _shares_subject(first: _Turn, second: _Turn, language: LanguageRules) -> bool:
    """Say whether shared words show one question: strictly where yes or no stands alone."""
    rules = language.question
    if first.has_statement and second.has_statement:
        return shared_subject(first.about, second.about, language) >= rules.min_stated
    return shared_subject(first.question, second.question, language) >= rules.min_asked


def _is_turned_round(first: _Turn, second: _Turn, language: LanguageRules) -> bool:
    if first.reading.statement is not None and second.reading.statement is not None:
        return are_opposed(_predicate(first), _predicate(second), language)
    return are_opposed(first.question, second.question, language)


def _predicate(turn: _Turn) -> str:
    span = turn.reading.statement
    return "" if span is None else turn.answer[span.end : span.end + _PREDICATE_CHARS]


def _judged(pairs: Sequence[tuple[_Turn, _Turn]], turns: Sequence[_Turn]) -> ContradictionVerdict:
    reversals = [(a, b) for a, b in pairs if a.reading.position is not b.reading.position]
    for first, second in reversals:
        if _acknowledged_between(first, second, turns) is None:
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


def _verdict(
    verdict: Verdict, reason: str, first: _Turn, second: _Turn, turns: Sequence[_Turn]
) -> ContradictionVerdict:
    return ContradictionVerdict(
        verdict=verdict,
        reason=reason,
        first=first.summary(),
        second=second.summary(),
        acknowledgement=_acknowledged_between(first, second, turns),
        positions=tuple(turn.summary() for turn in turns),
    )


def _acknowledged_between(first: _Turn, second: _Turn, turns: Sequence[_Turn]) -> Span | None:
    later = (turn for turn in turns if first.index < turn.index <= second.index)
    return next((turn.acknowledgement for turn in later if turn.acknowledgement), None)


def _why_unclear(turns: Sequence[_Turn]) -> str:
    if any(turn.language is None for turn in turns):
        return "A turn is in a language the rules do not cover."
    if sum(turn.is_clear for turn in turns) < 2:
        return "Fewer than two turns take a clear position."
    return "No two clear positions are on the same question."


def _unclear(reason: str, turns: Sequence[_Turn]) -> ContradictionVerdict:
    positions = tuple(turn.summary() for turn in turns)
    return ContradictionVerdict(verdict=Verdict.UNCLEAR, reason=reason, positions=positions)
