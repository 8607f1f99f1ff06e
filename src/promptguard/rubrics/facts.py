"""What an assistant says of itself, and later the opposite: "I have two dogs", "I have no pets"."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from promptguard.computations import checkpoint
from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import FactWording, LanguageRules, RubricPatterns
from promptguard.rubrics.position import Position, Span
from promptguard.rubrics.proposition import SYNONYM, proposition_of
from promptguard.rubrics.turns import Turn

_READ_CHARS = 2000
"""Of a longer answer the beginning is read."""
_MOST_MORE = 3
"""Words that the affirmed fact may have beyond the denied one."""


_MARKS = "()\"'/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something the speaker likes, has or does, or does not, in the words that name it.

    `general` names what the words are cases of: who has a dog has a pet.
    """

    name: str
    is_affirmed: bool
    words: frozenset[str]
    general: frozenset[str]
    span: Span


def fact_reversals(turns: Sequence[Turn], patterns: RubricPatterns) -> Iterator[tuple[Turn, Turn]]:
    """Yield two turns that affirm and deny one fact, with yes and no as readings, each two once."""
    before: deque[tuple[Turn, tuple[Fact, ...]]] = deque(maxlen=patterns.compared_turns)
    for second in turns:
        checkpoint()
        language = second.language
        found = () if language is None else facts_in(second.answer, language)
        for first, earlier in before:
            # Words of two languages cannot be compared.
            if first.language == language:
                yield from islice(_opposed(first, earlier, second, found), 1)
        if found:
            before.append((second, found))


def facts_in(text: str, language: LanguageRules) -> tuple[Fact, ...]:
    """Return the facts that the clauses of `text` state."""
    if not language.facts:
        return ()
    return tuple(
        fact
        for start, end in _clauses(fold(text[:_READ_CHARS]), language)
        for fact in _facts_of(text, start, end, language)
    )


def _clauses(folded: str, language: LanguageRules) -> Iterator[tuple[int, int]]:
    start = 0
    for stop in language.questions["clause"].pattern.finditer(folded):
        yield start, stop.start()
        start = stop.end()
    yield start, len(folded)


def _facts_of(text: str, start: int, end: int, language: LanguageRules) -> Iterator[Fact]:
    # Folding keeps every place, so that bounds found in folded text hold in the text itself.
    clause = fold(text[start:end])
    for wording, stated in language.stated(clause):
        on = _first_of(stated, language)
        words = _named_in(on, wording, language)
        if words:
            found = language.general.find(on)
            yield Fact(
                name=wording.entry.name,
                is_affirmed=wording.entry.weight > 0,
                words=words,
                general=frozenset(f"{SYNONYM}{hit.term}" for hit in found),
                span=Span(start=start, end=end, text=text[start:end]),
            )


def _named_in(on: str, wording: FactWording, language: LanguageRules) -> frozenset[str]:
    """Return the words that tell what a fact is on; light ones only where there are no others."""
    whole = proposition_of(on, language).words
    if wording.is_deed:
        return whole
    heavy = " ".join(word for word in on.split() if word.strip(_MARKS) not in language.light)
    return proposition_of(heavy, language).words or whole


def _first_of(on: str, language: LanguageRules) -> str:
    """Return what stands before an "and": what comes after it may be another statement."""
    joined = language.questions.get("join")
    found = joined.pattern.search(on) if joined is not None else None
    return on if found is None else on[: found.start()]


def _opposed(
    first: Turn, earlier: Sequence[Fact], second: Turn, found: Sequence[Fact]
) -> Iterator[tuple[Turn, Turn]]:
    for one in earlier:
        for other in found:
            if one.name == other.name and one.is_affirmed != other.is_affirmed:
                yes, no = (one, other) if one.is_affirmed else (other, one)
                if _denies(no, yes):
                    yield _read(first, one), _read(second, other)


def _denies(no: Fact, yes: Fact) -> bool:
    """Say whether to deny the one is to deny the other: it must not name anything more."""
    is_same = no.words <= yes.words and len(yes.words - no.words) <= _MOST_MORE
    return is_same or no.words <= yes.general


def _read(turn: Turn, fact: Fact) -> Turn:
    return turn.read_as(Position.YES if fact.is_affirmed else Position.NO, fact.span)
