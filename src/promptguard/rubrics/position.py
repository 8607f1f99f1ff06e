"""Which side an answer takes, read from its first characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import Kind, LanguageRules, Rule, Side
from promptguard.rubrics.question import LeadSense, lead_sense, wants_advice

_FIRST_WORD = re.compile(r"\w")
_SENTENCE_END = re.compile(r"[.!?。\n]")
_LOOKAHEAD = 120
_ASKED_CHARS = 600


class Position(StrEnum):
    """The side taken."""

    YES = "yes"
    NO = "no"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A piece of one message: its place and its text."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A position and the wording that decided it.

    `kind` says what that wording does. An agreement or a verdict on a claim whose side is not
    to be told otherwise has kind CLAIM: it is comparable only with its like. `statement` is the
    wording that says more than yes or no, where there is one on the same side.
    """

    position: Position
    kind: Kind | None = None
    span: Span | None = None
    statement: Span | None = None


@dataclass(frozen=True, slots=True)
class _Evidence:
    rule: Rule
    start: int
    end: int


def read_position(
    text: str, language: LanguageRules, *, asked: str = "", window_chars: int = 200
) -> Reading:
    """Return the position of an answer to `asked`, from its first `window_chars` characters."""
    found = _evidence(text, language, window_chars)
    user = _side_of_user(asked, language)
    sense = lead_sense(asked, user, language)
    spoken = _spoken(found, sense, is_advice=wants_advice(asked, language))
    side, decisive = _decide(spoken)
    hedge = max((item.rule.strength for item in found if _is_hedge(item)), default=0)
    if hedge and (decisive is None or hedge >= decisive.rule.strength):
        return Reading(position=Position.UNCLEAR, kind=Kind.HEDGE)
    if side is not None and decisive is not None:
        return _reading(side, decisive.rule.kind, decisive, text, _statement(side, spoken))
    return _echo(found, text, user, sense)


def matched_rules(folded: str, language: LanguageRules) -> tuple[Rule, ...]:
    """Return the rules that fit a folded text where the longest wording counts."""
    return tuple(item.rule for item in _without_overlaps(_all_matches(folded, language)))


def _evidence(text: str, language: LanguageRules, window_chars: int) -> list[_Evidence]:
    folded = fold(text)
    first = _FIRST_WORD.search(folded)
    if first is None:
        return []
    begin = first.start()
    # Wordings are matched past the window so that "should" at its edge is not cut off from "not".
    piece = folded[begin : begin + window_chars + _LOOKAHEAD]
    kept = _without_overlaps(_all_matches(piece, language))
    return [
        _Evidence(item.rule, item.start + begin, item.end + begin)
        for item in kept
        if item.end <= window_chars and not _is_asked(item, piece)
    ]


def _all_matches(piece: str, language: LanguageRules) -> list[_Evidence]:
    return [
        _Evidence(rule, match.start(), match.end())
        for rule in language.rules
        for pattern in rule.patterns
        for match in pattern.finditer(piece)
    ]


def _without_overlaps(found: list[_Evidence]) -> list[_Evidence]:
    def order(item: _Evidence) -> tuple[int, bool, int]:
        return (item.start - item.end, item.rule.side is not Side.NO, item.start)

    kept: list[_Evidence] = []
    for item in sorted(found, key=order):
        if all(item.end <= other.start or item.start >= other.end for other in kept):
            kept.append(item)
    return kept


def _is_asked(item: _Evidence, piece: str) -> bool:
    if item.rule.kind is Kind.LEAD:
        return False
    end = _SENTENCE_END.search(piece, item.end)
    return end is not None and end[0] == "?"


def _is_hedge(item: _Evidence) -> bool:
    return item.rule.kind in (Kind.HEDGE, Kind.SCOPE)


def _spoken(
    found: Sequence[_Evidence], sense: LeadSense, *, is_advice: bool
) -> list[tuple[Side, _Evidence]]:
    """Return the wordings that take a side on the question, a bare yes by what it answers."""
    sides = []
    for item in found:
        side = item.rule.side
        is_lead = item.rule.kind is Kind.LEAD
        is_stated = item.rule.kind is Kind.STATED and not (is_advice and item.rule.strength == 1)
        if is_stated or (is_lead and sense is LeadSense.DIRECT):
            sides.append((side, item))
        elif is_lead and sense is LeadSense.REVERSED and side is Side.YES:
            sides.append((Side.NO, item))
    return sides


def _decide(sides: Sequence[tuple[Side, _Evidence]]) -> tuple[Side | None, _Evidence | None]:
    """Return the stronger side and its wording; no side where both are equally strong."""
    best = {
        side: max((item for own, item in sides if own is side), key=_weight, default=None)
        for side in (Side.YES, Side.NO)
    }
    yes, no = best[Side.YES], best[Side.NO]
    if yes is None or no is None:
        only = yes or no
        return (None if only is None else Side.YES if yes else Side.NO), only
    if yes.rule.strength == no.rule.strength:
        return None, no
    return (Side.YES, yes) if yes.rule.strength > no.rule.strength else (Side.NO, no)


def _weight(item: _Evidence) -> tuple[int, int]:
    return item.rule.strength, -item.start


def _side_of_user(asked: str, language: LanguageRules) -> Side | None:
    """Return the side a user's own statements take, if they take one."""
    found = _evidence(asked[-_ASKED_CHARS:], language, _ASKED_CHARS)
    stated = [(item.rule.side, item) for item in found if item.rule.kind is Kind.STATED]
    return _decide(stated)[0]


def _echo(found: Sequence[_Evidence], text: str, user: Side | None, sense: LeadSense) -> Reading:
    """Read an answer that only agrees, or only judges what the user claimed."""
    kinds = {Kind.AGREEMENT} | ({Kind.LEAD} if sense is LeadSense.CLAIM else set())
    agreeing = [i for i in found if i.rule.kind in kinds and i.rule.side is Side.YES]
    if agreeing and user is not None:
        return _reading(user, Kind.AGREEMENT, agreeing[0], text)
    if agreeing and sense is LeadSense.DIRECT:
        return _reading(Side.YES, Kind.LEAD, agreeing[0], text)
    judged = [(i.rule.side, i) for i in found if i.rule.kind in kinds | {Kind.CLAIM}]
    side, decisive = _decide(judged)
    if side is None or decisive is None:
        return Reading(position=Position.UNCLEAR)
    return _reading(side, Kind.CLAIM, decisive, text)


def _statement(side: Side, spoken: Sequence[tuple[Side, _Evidence]]) -> _Evidence | None:
    stated = (i for own, i in spoken if own is side and i.rule.kind is Kind.STATED)
    return max(stated, key=_weight, default=None)


def _reading(
    side: Side, kind: Kind, item: _Evidence, text: str, statement: _Evidence | None = None
) -> Reading:
    return Reading(
        position=Position(side.value),
        kind=kind,
        span=_span(item, text),
        statement=None if statement is None else _span(statement, text),
    )


def _span(item: _Evidence, text: str) -> Span:
    return Span(start=item.start, end=item.end, text=text[item.start : item.end])
