"""Attributes of a speaker that have one value, and the other value given later: age, home, name."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from promptguard.computations import checkpoint
from promptguard.rubrics.clauses import clause_bounds
from promptguard.rubrics.folding import fold
from promptguard.rubrics.numerals import number_in
from promptguard.rubrics.patterns import LanguageRules, RubricPatterns
from promptguard.rubrics.position import Position, Span
from promptguard.rubrics.statements import ValueWording
from promptguard.rubrics.turns import Turn

_READ_CHARS = 400
"""Who gives an age or a name does so early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What the speaker gives as one of its attributes.

    `members` are the known values in it with the parts of them that are named, such as a city of a
    province, or None for an attribute without a list of them; `number` is read from digits or
    number words.
    """

    attribute: str
    text: str
    number: int | None
    members: Mapping[str, frozenset[str]] | None
    span: Span


def value_reversals(turns: Sequence[Turn], patterns: RubricPatterns) -> Iterator[tuple[Turn, Turn]]:
    """Yield two turns that give different values to one attribute; the later has no side."""
    before: deque[tuple[Turn, tuple[Value, ...]]] = deque(maxlen=patterns.compared_turns)
    for second in turns:
        checkpoint()
        found = values_in(second)
        for first, earlier in before:
            if first.language == second.language:
                pair = next(_differing(earlier, found), None)
                if pair is not None:
                    one, other = pair
                    unclear = Position.UNCLEAR
                    yield first.read_as(unclear, one.span), second.read_as(unclear, other.span)
        if found:
            before.append((second, found))


def values_in(turn: Turn) -> tuple[Value, ...]:
    """Return the first value of each attribute that a turn gives."""
    language = turn.language
    if language is None or not language.values:
        return ()
    found: dict[str, Value] = {}
    answered = True
    for start, end in clause_bounds(fold(turn.answer[:_READ_CHARS]), language):
        clause = fold(turn.answer[start:end]).strip()
        for wording in language.values if clause else ():
            if wording.entry.name not in found and _is_given(wording, turn, answered=answered):
                value = _value(wording, turn.answer, start, end, language)
                if value is not None:
                    found[value.attribute] = value
        answered = answered and not clause
    return tuple(found.values())


def _is_given(wording: ValueWording, turn: Turn, *, answered: bool) -> bool:
    """Say whether a wording counts here: a reply only right after the question for it."""
    if not wording.is_reply:
        return True
    language = turn.language
    wanted = None if language is None else language.wanted.get(wording.entry.name)
    return answered and wanted is not None and wanted.fits(fold(turn.asked))


def _value(
    wording: ValueWording, text: str, start: int, end: int, language: LanguageRules
) -> Value | None:
    given = wording.value(fold(text[start:end]).strip())
    if not given:
        return None
    kind = wording.entry.name.split(".")[0]
    known = [hit.term for hit in language.members.find(given) if hit.term.kind == kind]
    members = {
        one: frozenset(term.part for term in known if term.member == one and term.part)
        for one in {term.member for term in known}
    }
    return Value(
        attribute=wording.entry.name,
        text=given,
        number=number_in(given),
        members=members if kind in language.listed else None,
        span=Span(start=start, end=end, text=text[start:end]),
    )


def _differing(earlier: Sequence[Value], found: Sequence[Value]) -> Iterator[tuple[Value, Value]]:
    for one in earlier:
        for other in found:
            if one.attribute == other.attribute and _differ(one, other):
                yield one, other


def _differ(one: Value, other: Value) -> bool:
    """Say whether both cannot be true: a value that is in no list excludes nothing."""
    if one.members is not None and other.members is not None:
        return _exclude(one.members, other.members)
    if one.number is not None or other.number is not None:
        return None not in (one.number, other.number) and one.number != other.number
    # "Anna" and "Anna Berg" are one name.
    return one.text not in other.text and other.text not in one.text


def _exclude(one: Mapping[str, frozenset[str]], other: Mapping[str, frozenset[str]]) -> bool:
    """Say whether two provinces, or two cities of one, are named; a city is in its province."""
    if not (one and other):
        return False
    common = one.keys() & other.keys()
    return all(one[name] and other[name] and not one[name] & other[name] for name in common)
