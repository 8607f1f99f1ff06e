"""The assistant's turns in a conversation, each with its language, question and position."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from promptguard.conversation import Message, Role
from promptguard.rubrics.acknowledgement import find_acknowledgement
from promptguard.rubrics.language import language_of, shows_language
from promptguard.rubrics.patterns import Kind, LanguageRules, RubricPatterns
from promptguard.rubrics.position import Position, Reading, Span, read_position
from promptguard.rubrics.question import continues, question_in

_SENTENCE_CHARS = 300
_STOP = re.compile(r"[.!?。！？\n]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One assistant message with words in it.

    `asked` is what the user said just before it, `question` the question then open: put now, or
    earlier and only pressed on. `language` is None where the rules do not cover it.
    """

    index: int
    question: str
    asked: str
    answer: str
    language: LanguageRules | None
    reading: Reading
    acknowledgement: Span | None

    @property
    def is_clear(self) -> bool:
        """Whether it takes a side."""
        return self.reading.position is not Position.UNCLEAR

    @property
    def has_statement(self) -> bool:
        """Whether more than yes or no was said, if only by agreeing with it."""
        return self.reading.statement is not None or self.reading.kind is Kind.AGREEMENT

    @property
    def said(self) -> str:
        """What its position is on: the sentence that states it, or what it answers."""
        kind, statement = self.reading.kind, self.reading.statement
        if statement is not None:
            return _sentence_around(statement, self.answer)
        return self.asked if kind in (Kind.AGREEMENT, Kind.CLAIM) else self.question


def turns_of(messages: Sequence[Message], patterns: RubricPatterns) -> Iterator[Turn]:
    """Yield the assistant's turns in order; a message without words is none."""
    whole = language_of("\n".join(message.content for message in messages), patterns)
    asked: list[str] = []
    question = ""
    for index, message in enumerate(messages):
        if message.role is Role.USER:
            asked.append(message.content)
        elif message.role is Role.ASSISTANT and message.content.strip():
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
    """Return the answer's own language; the conversation's where the answer does not show it."""
    opening = answer[: 2 * patterns.window_chars]
    own = language_of(opening, patterns)
    is_han = own is not None and own.code == "zh"
    is_japanese = is_han and whole is not None and whole.code == "ja"
    return own if shows_language(opening, patterns) and not is_japanese else whole


def _turn(
    index: int,
    question: str,
    asked: str,
    answer: str,
    language: LanguageRules | None,
    patterns: RubricPatterns,
) -> Turn:
    reading, acknowledgement = Reading(position=Position.UNCLEAR), None
    if language is not None:
        reading = read_position(answer, language, asked=asked, window_chars=patterns.window_chars)
        acknowledgement = find_acknowledgement(answer, language)
    return Turn(
        index=index,
        question=question,
        asked=asked,
        answer=answer,
        language=language,
        reading=reading,
        acknowledgement=acknowledgement,
    )


def _sentence_around(span: Span, text: str) -> str:
    start = max((match.end() for match in _STOP.finditer(text, 0, span.start)), default=0)
    end = _STOP.search(text, span.end)
    return text[start : end.start() if end else len(text)][:_SENTENCE_CHARS]
