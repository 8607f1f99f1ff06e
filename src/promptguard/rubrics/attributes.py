"""Attributes of a speaker that have one value, and the other value given later: age, home, name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import LanguageRules, RubricPatterns
from promptguard.rubrics.position import Position, Span
from promptguard.rubrics.turns import Turn, each_two

_READ_CHARS = 400
"""Who gives an age or a name does so early."""
_DIGITS = {char: at for at, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_UNITS = {"十": 10, "百": 100}
_MOST_DIGITS = 6


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
    for first, one, second, other in each_two(
        turns, patterns.compared_turns, values_in, _are_different
    ):
        unclear = Position.UNCLEAR
        yield first.read_as(unclear, one.span), second.read_as(unclear, other.span)


def values_in(turn: Turn, language: LanguageRules) -> tuple[Value, ...]:
    """Return the first value of each attribute that a turn gives.

    A reply gives it only at the beginning of an answer to a question that asks for it.
    """
    found: dict[str, Value] = {}
    answered = True
    clauses = language.clauses(fold(turn.answer[:_READ_CHARS])) if language.values else ()
    for start, end in clauses:
        clause = fold(turn.answer[start:end]).strip()
        for wording in language.values if clause else ():
            name = wording.entry.name
            is_given = wording.entry.kind == "value" or (
                answered and language.wanted.fits(name, fold(turn.asked))
            )
            if is_given and name not in found and (given := wording.on(clause)):
                span = Span(start=start, end=end, text=turn.answer[start:end])
                found[name] = _value(name, given, span, language)
        answered = answered and not clause
    return tuple(found.values())


def _value(name: str, given: str, span: Span, language: LanguageRules) -> Value:
    kind = name.split(".")[0]
    known = [hit.term for hit in language.members.find(given) if hit.term.kind == kind]
    members = {
        one: frozenset(term.part for term in known if term.member == one and term.part)
        for one in {term.member for term in known}
    }
    return Value(
        attribute=name,
        text=given,
        number=number_in(given),
        members=members if kind in language.listed else None,
        span=span,
    )


def _are_different(one: Value, other: Value, _language: LanguageRules) -> bool:
    """Say whether both cannot be true: a value that is in no list excludes nothing."""
    if one.attribute != other.attribute:
        return False
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


def number_in(text: str) -> int | None:
    """Return the number that a text is, or None where it is none or a very long one."""
    plain = text.strip()
    if not plain or len(plain) > _MOST_DIGITS:
        return None
    if plain.isascii():
        return int(plain) if plain.isdigit() else None
    if all(char in _DIGITS for char in plain):
        return int("".join(str(_DIGITS[char]) for char in plain))
    return _spelled(plain)


def _spelled(text: str) -> int | None:
    """Return a number with tens and hundreds in it: each takes the digit before it, or one."""
    total, digit = 0, 0
    for char in text:
        if char in _UNITS:
            total += max(digit, 1) * _UNITS[char]
            digit = 0
        elif char in _DIGITS or (char.isascii() and char.isdigit()):
            digit = digit * 10 + (_DIGITS[char] if char in _DIGITS else int(char))
        else:
            return None
    return total + digit
