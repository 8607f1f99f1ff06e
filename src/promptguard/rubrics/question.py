"""What an answer answers: the question put, and the sense of a bare yes."""

from __future__ import annotations

import re
from enum import StrEnum

from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import Kind, LanguageRules, Side
from promptguard.rubrics.proposition import proposition_of

_NO_STATEMENT = 4
_LETTER = re.compile(r"\w")


class LeadSense(StrEnum):
    """What a bare yes means after what was asked."""

    DIRECT = "direct"
    REVERSED = "reversed"
    CLAIM = "claim"
    PRESSED = "pressed"
    VOID = "void"


def question_in(asked: str, language: LanguageRules) -> str:
    """Return the last question in `asked`, folded; its last sentence where it asks nothing.

    A question without a subject of its own takes the sentence before it along.
    """
    before, question = last_question(asked, language)
    if before and language.asks("asks", question) and proposition_of(question, language).is_empty:
        # "Is that right?" asks about what was said before it.
        return f"{before} {question}"
    return question


def last_question(asked: str, language: LanguageRules) -> tuple[str, str]:
    """Return the last question in `asked`, folded, after the sentence before it.

    It is the last sentence where none asks anything.
    """
    sentences = _sentences(fold(asked), language)
    if not sentences:
        return "", ""
    places = [at for at, piece in enumerate(sentences) if language.asks("asks", piece)]
    at = places[-1] if places else len(sentences) - 1
    return sentences[at - 1] if at else "", sentences[at]


def continues(asked: str, language: LanguageRules) -> bool:
    """Say whether `asked` only presses on: it asks nothing, nothing new, or nothing definite."""
    if language.asks("topic_change", fold(asked)):
        return False
    question = question_in(asked, language)
    is_pressing = any(language.asks(name, question) for name in ("refers", "rhetorical"))
    if is_pressing or not language.asks("asks", question):
        return True
    return proposition_of(question, language).is_empty


def is_question(text: str, language: LanguageRules) -> bool:
    """Say whether a text asks something."""
    return language.asks("asks", fold(text))


def lead_sense(asked: str, user: Side | None, language: LanguageRules) -> LeadSense:
    """Return how a bare yes or no is to be taken after `asked`.

    It is void after a request for information, a demand to confirm, and a negative that leaves
    it open; it is reversed where yes agrees that something should not be, and speaks of the
    user's claim where nothing is asked, or where the question only presses the claim. `user` is the
    side of the user's own statements.
    """
    question = question_in(asked, language)
    if any(language.asks(name, question) for name in ("information", "advice", "confirms")):
        return LeadSense.VOID
    if language.asks("rhetorical", question):
        return LeadSense.PRESSED
    if not language.asks("asks", question):
        return _sense_after_statement(asked, user, language)
    if "polar" in language.questions and not language.asks("polar", question):
        return LeadSense.VOID
    plain = language.questions.without("neutral", question, " ")
    if not language.asks("negated", plain):
        return LeadSense.DIRECT
    return LeadSense.REVERSED if _denies(plain, language) else LeadSense.VOID


def _sense_after_statement(asked: str, user: Side | None, language: LanguageRules) -> LeadSense:
    if user is not None or "polar" in language.questions:
        return LeadSense.CLAIM
    is_pressing = language.asks("presses", question_in(asked, language))
    return LeadSense.DIRECT if is_pressing or len(asked) <= _NO_STATEMENT else LeadSense.CLAIM


def _denies(question: str, language: LanguageRules) -> bool:
    return language.yes_can_deny and any(
        found.side is Side.NO and found.wording.kind in (Kind.STATED, Kind.PREDICATE)
        for found in language.found(question)
    )


def _sentences(folded: str, language: LanguageRules) -> list[str]:
    ends = [end for _, end in language.questions.spans("stop", folded)]
    bounds = zip([0, *ends], [*ends, len(folded)], strict=True)
    return [piece for a, b in bounds if _LETTER.search(piece := folded[a:b].strip())]
