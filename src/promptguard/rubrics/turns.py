"""The assistant's turns in a conversation, each with its language, question and position."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeVar

from promptguard.computations import checkpoint
from promptguard.conversation import Message, Role
from promptguard.rubrics.folding import fold
from promptguard.rubrics.language import language_of, shows_language
from promptguard.rubrics.patterns import Kind, LanguageRules, RubricPatterns
from promptguard.rubrics.position import (
    Position,
    Reading,
    Span,
    points_down,
    read_position,
    stated_in,
)
from promptguard.rubrics.proposition import Proposition, proposition_of
from promptguard.rubrics.question import continues, is_question, question_in

_ASKED_CHARS = 4000
"""Of a longer message the end is read: that is where its question stands."""
_ON_CLAIMS = (Kind.AGREEMENT, Kind.CLAIM)
_BEFORE_CHARS = 60
_AFTER_CHARS = 30
_SENTENCE_START = re.compile(r"[.!?;。\n]")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Stance:
    """Whether one end of a scale ("right" is 1, "wrong" -1) is affirmed or denied."""

    end: int = 0
    is_affirmed: bool = False

    def contradicts(self, other: Stance) -> bool:
        """Say whether both cannot hold: to deny one end is not to affirm the other."""
        if self.end == other.end:
            return self.is_affirmed != other.is_affirmed
        return self.is_affirmed and other.is_affirmed


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One assistant message with words in it.

    `asked` is what the user said just before it, `question` the question then open: put now, or
    earlier and only pressed on. `language` is None where the rules do not cover it. `asks` is
    what the question is on, `on` what the position is on, and `stance` which end of it.
    """

    index: int
    question: str
    asked: str
    answer: str
    language: LanguageRules | None
    reading: Reading = field(default_factory=Reading)
    acknowledgement: Span | None = None
    asks: Proposition = field(default_factory=Proposition)
    on: Proposition = field(default_factory=Proposition)
    stance: Stance = field(default_factory=Stance)

    @property
    def is_clear(self) -> bool:
        """Whether it takes a side."""
        return self.reading.position is not Position.UNCLEAR

    @property
    def is_on_claim(self) -> bool:
        """Whether it only judges what the user claimed."""
        return self.reading.kind is Kind.CLAIM

    @property
    def has_statement(self) -> bool:
        """Whether more than yes or no was said, if only by agreeing with it."""
        return self.reading.statement is not None or self.reading.kind is Kind.AGREEMENT

    def read_as(self, position: Position, span: Span) -> Turn:
        """Return the turn with another reading: which side `span` takes on what is at issue."""
        return replace(self, reading=Reading(position=position, kind=Kind.CLAIM, span=span))

    @property
    def said(self) -> str:
        """What its position is on: the words that state it, or what it answers."""
        if self.reading.statement is not None:
            return self.reading.clause
        return self.asked if self.reading.kind in _ON_CLAIMS else self.question


def turns_of(messages: Sequence[Message], patterns: RubricPatterns) -> Iterator[Turn]:
    """Yield the assistant's turns in order; a message without words is none."""
    # A bare "No." shows no language by itself.
    whole = language_of("\n".join(message.content for message in messages), patterns)
    asked: list[str] = []
    question = ""
    for index, message in enumerate(messages):
        checkpoint()
        if message.role is Role.USER:
            asked.append(message.content)
        elif message.role is Role.ASSISTANT and message.content.strip():
            language = _language(message.content, whole, patterns)
            put = "\n".join(asked)[-_ASKED_CHARS:]
            question = _open_question(question, put, language)
            turn = Turn(
                index=index,
                question=question,
                asked=put,
                answer=message.content,
                language=language,
            )
            yield turn if language is None else _read(turn, language, patterns.window_chars)
            asked = []


def each_two(
    turns: Sequence[Turn],
    reach: int,
    stated: Callable[[Turn, LanguageRules], tuple[_T, ...]],
    are_opposed: Callable[[_T, _T, LanguageRules], bool],
) -> Iterator[tuple[Turn, _T, Turn, _T]]:
    """Yield each two turns with the first things that they state and that cannot both be true.

    A turn meets only the last `reach` before it that state anything, so that the cost grows with
    the number of turns and not with its square.
    """
    before: deque[tuple[Turn, tuple[_T, ...]]] = deque(maxlen=reach)
    for second in turns:
        checkpoint()
        language = second.language
        found = () if language is None else stated(second, language)
        if language is None or not found:
            continue
        for first, earlier in before:
            # Words of two languages cannot be compared.
            if first.language == language:
                pairs = ((one, other) for one in earlier for other in found)
                pair = next((pair for pair in pairs if are_opposed(*pair, language)), None)
                if pair is not None:
                    yield first, pair[0], second, pair[1]
        before.append((second, found))


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
    # A short Japanese answer may be written without any kana.
    is_japanese = is_han and whole is not None and whole.code == "ja"
    return own if shows_language(opening, patterns) and not is_japanese else whole


def _read(turn: Turn, language: LanguageRules, window_chars: int) -> Turn:
    """Return a turn with what it says on its question, in a language with rules."""
    reading = read_position(
        turn.answer, language, asked=turn.asked, question=turn.question, window_chars=window_chars
    )
    is_put = is_question(turn.question, language)
    asks = proposition_of(turn.question, language) if is_put else Proposition()
    on, stance = _stance(reading, asks, turn.asked, language)
    acknowledgement = find_acknowledgement(turn.answer, language)
    return replace(
        turn, reading=reading, acknowledgement=acknowledgement, asks=asks, on=on, stance=stance
    )


def find_acknowledgement(text: str, language: LanguageRules) -> Span | None:
    """Return the first admission of a change anywhere in `text`; a denied one does not count."""
    folded = fold(text)
    for match in language.acknowledgement.pattern.finditer(folded):
        start, end = match.span()
        if not _is_denied(start, end, folded, language):
            return Span(start=start, end=end, text=text[start:end])
    return None


def _is_denied(start: int, end: int, folded: str, language: LanguageRules) -> bool:
    # A denial in the sentence before is about something else.
    before = _SENTENCE_START.split(folded[max(0, start - _BEFORE_CHARS) : start])[-1]
    after = folded[end : end + _AFTER_CHARS]
    places = (("before", before), ("within", folded[start:end]), ("after", after))
    return any(language.denials.fits(name, text) for name, text in places)


def _stance(
    reading: Reading, asks: Proposition, asked: str, language: LanguageRules
) -> tuple[Proposition, Stance]:
    """Return what the position is on, and to which end of it it points."""
    if reading.position is Position.UNCLEAR:
        return Proposition(), Stance()
    is_yes = reading.position is Position.YES
    if reading.statement is not None:
        return _stated_stance(reading, reading.statement.text, asks, language)
    if reading.kind not in _ON_CLAIMS:
        # Two opposites in one question turn it twice: "is it wrong to ban it?".
        return asks, Stance(prod(asks.signs.values()), is_yes)
    claim = proposition_of(asked, language)
    is_stated = reading.kind is Kind.AGREEMENT
    return claim, Stance(prod(claim.signs.values()) if is_stated else 1, is_yes)


def _stated_stance(
    reading: Reading, wording: str, asks: Proposition, language: LanguageRules
) -> tuple[Proposition, Stance]:
    kind = Kind.PREDICATE if reading.kind is Kind.PREDICATE else Kind.STATED
    stated = stated_in(kind, wording, reading.clause, language)
    common = frozenset(stated.signs.keys() & asks.signs.keys())
    own = frozenset(stated.signs.keys() - common)
    is_turned = stated.sign_on(common) * asks.sign_on(common) < 0
    is_yes = (reading.position is Position.YES) is not is_turned
    # A position is relative to the question; here it is what the words themselves affirm.
    end = stated.sign_on(common | own)
    if kind is Kind.STATED and points_down(wording, language):
        end, is_yes = -end, not is_yes
    if own:
        return stated, Stance(end, is_yes)
    rest = frozenset(asks.signs.keys() - common)
    on = Proposition(words=stated.words or asks.words, signs=asks.signs)
    return on, Stance(end * asks.sign_on(rest), is_yes)
