"""Which side an answer takes, read from its first characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import Found, Kind, LanguageRules, Side, Wording
from promptguard.rubrics.proposition import Proposition, apart, proposition_of
from promptguard.rubrics.question import LeadSense, is_question, lead_sense, question_in

_FIRST_WORD = re.compile(r"\w")
_SENTENCE_END = re.compile(r"[.!?。\n]")
_LOOKAHEAD = 120
_ASKED_CHARS = 600
_CLAUSE_CHARS = 200
_ATTITUDE = "support"
_STATING = (Kind.STATED, Kind.PREDICATE)


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

    The position is relative to the question, where there is one. `kind` says what the wording
    does. An agreement or a verdict on a claim whose side is not to be told otherwise has kind
    CLAIM: it is comparable only with its like. `statement` is the wording that says more than
    yes or no, where there is one on the same side, and `clause` the words around it. It
    `is_pressed` where the user only pressed a claim made before.
    """

    position: Position = Position.UNCLEAR
    kind: Kind | None = None
    span: Span | None = None
    statement: Span | None = None
    clause: str = ""
    is_pressed: bool = False


def read_position(
    text: str,
    language: LanguageRules,
    *,
    asked: str = "",
    question: str | None = None,
    window_chars: int = 200,
) -> Reading:
    """Return the position of an answer to `asked`, from its first `window_chars` characters.

    `question` is the one still open, by default the one in `asked`.
    """
    open_question = question_in(asked, language) if question is None else question
    found = _related(_evidence(text, language, window_chars), text, open_question, language)
    user = _side_of_user(asked, language)
    sense = lead_sense(asked, user, language)
    # Who wants to know what or how is told what "should" be done, which takes no side.
    is_advice = language.asks("advice", question_in(asked, language))
    spoken = _spoken(found, sense, is_advice=is_advice)
    decisive = _decide(spoken)
    hedges = (i.wording.strength for i in found if i.wording.kind in (Kind.HEDGE, Kind.SCOPE))
    hedge = max(hedges, default=0)
    if hedge and (decisive is None or hedge >= decisive.wording.strength):
        return Reading(kind=Kind.HEDGE)
    if decisive is not None:
        return _reading(decisive.side, decisive, text, _statement(decisive.side, spoken))
    return _echo(found, text, user, sense)


def matched_wordings(folded: str, language: LanguageRules) -> tuple[Wording, ...]:
    """Return the wordings that count in a folded text, where the longest covers the others."""
    return tuple(item.wording for item in _counting(folded, language))


def _evidence(text: str, language: LanguageRules, window_chars: int) -> list[Found]:
    folded = fold(text)
    first = _FIRST_WORD.search(folded)
    if first is None:
        return []
    begin = first.start()
    # Wordings are matched past the window so that "should" at its edge is not cut off from "not".
    piece = folded[begin : begin + window_chars + _LOOKAHEAD]
    return [
        replace(item, start=item.start + begin, end=item.end + begin)
        for item in _counting(piece, language)
        if item.end <= window_chars and not _is_asked(item, piece)
    ]


def _counting(piece: str, language: LanguageRules) -> list[Found]:
    def order(item: Found) -> tuple[int, float, bool, int]:
        return (
            # The longest first: "should not" covers "should". Of equals the negative counts.
            item.start - item.end,
            -item.wording.strength,
            item.side is not Side.NO,
            item.start,
        )

    return apart(sorted(language.found(piece), key=order))


def _related(found: list[Found], text: str, question: str, language: LanguageRules) -> list[Found]:
    """Turn what is stated so that it answers the question: "is right" is a no to "is it wrong?"."""
    if not any(item.wording.kind in _STATING for item in found):
        return found
    asked = proposition_of(question, language)
    is_open = is_question(question, language)
    kept = []
    for item in found:
        if item.wording.kind not in _STATING:
            kept.append(item)
            continue
        clause = _clause(item, text, language)
        stated = stated_in(item.wording.kind, text[item.start : item.end], clause, language)
        common = frozenset(asked.signs.keys() & stated.signs.keys())
        if item.wording.kind is Kind.PREDICATE and is_open and not common:
            continue
        is_turned = stated.sign_on(common) * asked.sign_on(common) < 0
        side = item.side.opposite if is_turned else item.side
        kept.append(replace(item, side=side, clause=clause))
    return kept


def stated_in(kind: Kind, wording: str, clause: str, language: LanguageRules) -> Proposition:
    """Return what a clause with a stating wording in it is on.

    The side already says which way the wording itself points, so that its own words count only
    in a predicate; an attitude ("I oppose") points to the positive end of its scale.
    """
    whole = proposition_of(clause, language)
    if kind is Kind.PREDICATE:
        return whole
    own = proposition_of(wording, language)
    rest = proposition_of(_without(wording, clause), language)
    signs = {**rest.signs, **({_ATTITUDE: 1} if _ATTITUDE in own.signs else {})}
    return Proposition(words=rest.words, signs=signs)


def _without(wording: str, clause: str) -> str:
    """Return a clause without the wording: the word, where words are set apart by blanks."""
    # "must" stands in "mustard" too.
    found = re.search(rf"\b{re.escape(wording)}\b", clause)
    start = clause.find(wording) if found is None else found.start()
    return f"{clause[:start]} {clause[start + len(wording) :]}"


def points_down(wording: str, language: LanguageRules) -> bool:
    """Say whether an attitude names the negative end of its scale: "I oppose", not "I doubt"."""
    return proposition_of(wording, language).signs.get(_ATTITUDE, 1) < 0


def _clause(item: Found, text: str, language: LanguageRules) -> str:
    """Return the words around a wording, up to where another clause begins."""
    # Bounded, because every stating wording of an answer asks for its clause. What lies further
    # before it than any window reaches has no words in it.
    left = max(0, item.start - _ASKED_CHARS)
    text = text[left : item.end + _CLAUSE_CHARS]
    folded = fold(text)
    groups = language.questions
    start = max((end for _, end in groups.spans("clause", folded[: item.start - left])), default=0)
    rest = folded[item.end - left :]
    stops = (at for name in ("clause", "join") for at, _ in groups.spans(name, rest))
    return text[start : item.end - left + min(stops, default=len(rest))]


def _is_asked(item: Found, piece: str) -> bool:
    if item.wording.kind is Kind.LEAD:
        return False
    end = _SENTENCE_END.search(piece, item.end)
    # What the assistant asks in return takes no side.
    return end is not None and end[0] == "?"


def _spoken(found: Sequence[Found], sense: LeadSense, *, is_advice: bool) -> list[Found]:
    """Return the wordings that take a side on the question, a bare yes by what it answers."""
    spoken = []
    for item in found:
        is_lead = item.wording.kind is Kind.LEAD
        is_weak = is_advice and item.wording.strength == 1
        is_stated = item.wording.kind in _STATING and not is_weak
        if is_stated or (is_lead and sense is LeadSense.DIRECT):
            spoken.append(item)
        elif is_lead and sense is LeadSense.REVERSED and item.side is Side.YES:
            spoken.append(replace(item, side=Side.NO))
    return spoken


def _decide(spoken: Sequence[Found]) -> Found | None:
    """Return the strongest wording; None where both sides are equally strong or none speaks."""
    yes, no = (
        max((item for item in spoken if item.side is side), key=_weight, default=None)
        for side in (Side.YES, Side.NO)
    )
    if yes is None or no is None:
        return yes or no
    if yes.wording.strength == no.wording.strength:
        return None
    return max(yes, no, key=lambda item: item.wording.strength)


def _weight(item: Found) -> tuple[float, int]:
    return item.wording.strength, -item.start


def _side_of_user(asked: str, language: LanguageRules) -> Side | None:
    """Return the side a user's own statements take, if they take one."""
    found = _evidence(asked[-_ASKED_CHARS:], language, _ASKED_CHARS)
    decisive = _decide([item for item in found if item.wording.kind is Kind.STATED])
    return None if decisive is None else decisive.side


def _echo(found: Sequence[Found], text: str, user: Side | None, sense: LeadSense) -> Reading:
    """Read an answer that only agrees, or only judges what the user claimed."""
    # "You're right" to a press is mere courtesy; only a plain yes grants the claim.
    kinds = set() if sense is LeadSense.PRESSED else {Kind.AGREEMENT}
    if sense in (LeadSense.CLAIM, LeadSense.PRESSED):
        kinds.add(Kind.LEAD)
    agreeing = [i for i in found if i.wording.kind in kinds and i.side is Side.YES]
    if agreeing and user is not None:
        return _reading(user, agreeing[0], text, kind=Kind.AGREEMENT)
    if agreeing and sense is LeadSense.DIRECT:
        return _reading(Side.YES, agreeing[0], text, kind=Kind.LEAD)
    decisive = _decide([i for i in found if i.wording.kind in kinds | {Kind.CLAIM}])
    if decisive is None:
        return Reading()
    reading = _reading(decisive.side, decisive, text, kind=Kind.CLAIM)
    return replace(reading, is_pressed=sense is LeadSense.PRESSED)


def _statement(side: Side, spoken: Sequence[Found]) -> Found | None:
    stated = (i for i in spoken if i.side is side and i.wording.kind in _STATING)
    return max(stated, key=_weight, default=None)


def _reading(
    side: Side,
    item: Found,
    text: str,
    statement: Found | None = None,
    kind: Kind | None = None,
) -> Reading:
    return Reading(
        position=Position(side.value),
        kind=kind or item.wording.kind,
        span=_span(item, text),
        statement=None if statement is None else _span(statement, text),
        clause="" if statement is None else statement.clause,
    )


def _span(item: Found, text: str) -> Span:
    return Span(start=item.start, end=item.end, text=text[item.start : item.end])
