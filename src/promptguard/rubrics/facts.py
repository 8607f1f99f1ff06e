"""What an assistant says of itself, and later the opposite: "I have two dogs", "I have no pets"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from promptguard.rubrics.echo import Echo, echoes_of
from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import LanguageRules, RubricPatterns, Statement
from promptguard.rubrics.position import Position, Span
from promptguard.rubrics.proposition import SYNONYM, proposition_of
from promptguard.rubrics.turns import Stance, Turn, each_two

_READ_CHARS = 2000
"""Of a longer answer the beginning is read."""
_MOST_MORE = 3
"""Words that the affirmed fact may have beyond the denied one."""
_MARKS = "()\"'/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something the speaker likes, has or does, or does not, in the words that name it.

    `general` names what the words are cases of: who has a dog has a pet. It `is_answer` where it
    affirms or denies what a question put, in the words of the question.
    """

    name: str
    stance: Stance
    words: frozenset[str]
    general: frozenset[str]
    span: Span
    is_answer: bool = False


def fact_reversals(turns: Sequence[Turn], patterns: RubricPatterns) -> Iterator[tuple[Turn, Turn]]:
    """Yield two turns that affirm and deny one fact, with yes and no as readings, each two once."""
    for first, one, second, other in each_two(turns, patterns.compared_turns, _facts, _are_opposed):
        yield _read(first, one), _read(second, other)


def facts_in(text: str, language: LanguageRules) -> tuple[Fact, ...]:
    """Return the facts that the clauses of `text` state."""
    if not language.facts:
        return ()
    return tuple(
        fact
        for start, end in language.clauses(fold(text[:_READ_CHARS]))
        for fact in _facts_of(text, start, end, language)
    )


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
                stance=Stance(1, is_affirmed=wording.entry.weight > 0),
                words=words,
                general=frozenset(f"{SYNONYM}{hit.term}" for hit in found),
                span=Span(start=start, end=end, text=text[start:end]),
            )


def _facts(turn: Turn, language: LanguageRules) -> tuple[Fact, ...]:
    answered = (fact for echo in echoes_of(turn) for fact in _answered(echo, language))
    return (*facts_in(turn.answer, language), *answered)


def _answered(echo: Echo, language: LanguageRules) -> Iterator[Fact]:
    """Yield what an answer in words of its question states: the claim, and the facts in it."""
    claim = echo.claim
    if claim.on.words:
        yield Fact(
            name=claim.scale,
            stance=echo.stance,
            words=claim.on.words,
            general=frozenset(),
            span=echo.span,
            is_answer=True,
        )
    if echo.stance.end * prod(claim.on.signs.values()) < 0:
        return
    own = f"{language.speaker}{claim.core}"
    for fact in _facts_of(own, 0, len(own), language):
        if fact.stance.is_affirmed:
            affirmed = Stance(1, is_affirmed=echo.stance.is_affirmed)
            yield replace(fact, stance=affirmed, span=echo.span)


def _named_in(on: str, wording: Statement, language: LanguageRules) -> frozenset[str]:
    """Return the words that tell what a fact is on; light ones only where there are no others.

    What the speaker does or can do begins with its verb, and every word of it counts.
    """
    whole = proposition_of(on, language).words
    if wording.entry.kind == "deed":
        return whole
    heavy = " ".join(word for word in on.split() if word.strip(_MARKS) not in language.light)
    return proposition_of(heavy, language).words or whole


def _first_of(on: str, language: LanguageRules) -> str:
    """Return what stands before an "and": what comes after it may be another statement."""
    return on[: next((at for at, _ in language.questions.spans("join", on)), None)]


def _are_opposed(one: Fact, other: Fact, language: LanguageRules) -> bool:
    if (one.name, one.is_answer) != (other.name, other.is_answer):
        return False
    if not one.stance.contradicts(other.stance):
        return False
    if one.is_answer:
        # Two questions put one claim where what is in only one of them is little.
        shared, either = one.words & other.words, one.words | other.words
        return len(shared) / len(either) >= language.min_alike
    yes, no = (one, other) if one.stance.is_affirmed else (other, one)
    return _denies(no, yes)


def _denies(no: Fact, yes: Fact) -> bool:
    """Say whether to deny the one is to deny the other: it must not name anything more."""
    is_same = no.words <= yes.words and len(yes.words - no.words) <= _MOST_MORE
    return is_same or no.words <= yes.general


def _read(turn: Turn, fact: Fact) -> Turn:
    is_yes = fact.stance.is_affirmed is (fact.stance.end > 0)
    return turn.read_as(Position.YES if is_yes else Position.NO, fact.span)
