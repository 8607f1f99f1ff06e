"""What an answer answers: the question put, the sense of a bare yes, and what two texts share."""

from __future__ import annotations

import re
from enum import StrEnum

from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import Kind, LanguageRules, Side

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_CJK_UNIT = re.compile("[\u30a1-\u30fa\u30fc]{2,}|[\u3400-\u4dbf\u4e00-\u9fff]")
_ENDING = re.compile(r"(?:'s|ings?|edly|ed|ies|es|s|ly|ions?|e|y)$")
_SHORTEST_STEM = 4


class LeadSense(StrEnum):
    """What a bare yes means after what was asked."""

    DIRECT = "direct"
    REVERSED = "reversed"
    VOID = "void"


def question_in(asked: str, language: LanguageRules) -> str:
    """Return the last question in `asked`, folded; its last sentence where it asks nothing."""
    sentences = [
        piece.strip()
        for piece in language.question.sentence.findall(fold(asked))
        if re.search(r"\w", piece)
    ]
    questions = [piece for piece in sentences if _matches(language.question.asks, piece)]
    return (questions or sentences or [""])[-1]


def continues(asked: str, language: LanguageRules) -> bool:
    """Say whether `asked` only presses on: it asks nothing, or nothing with a subject."""
    question = question_in(asked, language)
    if _matches(language.question.topic_change, fold(asked)):
        return False
    return not _matches(language.question.asks, question) or not subject_words(question, language)


def lead_sense(asked: str, user: Side | None, language: LanguageRules) -> LeadSense:
    """Return how a bare yes or no is to be taken after `asked`.

    It is void after a request for information and after a negative that leaves it open, and
    reversed where yes agrees that something should not be; `user` is the side of the user's own
    statements.
    """
    question = question_in(asked, language)
    rules = language.question
    if not question:
        return LeadSense.VOID if rules.polar else LeadSense.DIRECT
    if rules.polar and not _matches(rules.polar, question):
        return LeadSense.VOID
    if _matches(rules.information, question):
        return LeadSense.VOID
    if not _matches(rules.asks, question):
        return LeadSense.REVERSED if user is Side.NO else LeadSense.DIRECT
    plain = _without(question, rules.neutral)
    if not _matches(rules.negated, plain):
        return LeadSense.DIRECT
    return LeadSense.REVERSED if _denies(plain, language) else LeadSense.VOID


def shared_subject(left: str, right: str, language: LanguageRules) -> float:
    """Return the share of subject words that the text with fewer of them has in common."""
    ours, theirs = subject_words(left, language), subject_words(right, language)
    fewest = min(len(ours), len(theirs))
    return len(ours & theirs) / fewest if fewest else 0.0


def subject_words(text: str, language: LanguageRules) -> frozenset[str]:
    """Return what a text is about: stems of its words; in CJK, Han characters and katakana words."""
    folded = _without(fold(text), language.question.fillers)
    stems = (
        _stem(word)
        for word in _WORD.findall(_CJK_UNIT.sub(" ", folded))
        if word.isascii() and word not in language.question.ignored_words and len(word) > 1
    )
    return frozenset((*_CJK_UNIT.findall(folded), *stems))


def are_opposed(left: str, right: str, language: LanguageRules) -> bool:
    """Say whether two texts use opposite words, so that one yes would be the other's no."""
    ours, theirs = fold(left), fold(right)
    return any(
        _parts_on(one, other, ours, theirs) or _parts_on(other, one, ours, theirs)
        for one, other in language.question.opposites
    )


def _denies(question: str, language: LanguageRules) -> bool:
    denying = (r for r in language.rules if r.side is Side.NO and r.kind is Kind.STATED)
    return language.question.yes_can_deny and any(_matches(r.patterns, question) for r in denying)


def _parts_on(one: str, other: str, ours: str, theirs: str) -> bool:
    return (
        _has(one, ours) and _has(other, theirs) and not _has(other, ours) and not _has(one, theirs)
    )


def _has(word: str, text: str) -> bool:
    if word.isascii():
        return re.search(rf"\b{re.escape(word)}(?:s|d|ed|ing|ned|ning)?\b", text) is not None
    return word in text


def _stem(word: str) -> str:
    shorter = _ENDING.sub("", word)
    return shorter if len(shorter) >= _SHORTEST_STEM else word.removesuffix("s")


def _matches(patterns: tuple[re.Pattern[str], ...], text: str) -> bool:
    return any(pattern.search(text) for pattern in patterns)


def _without(text: str, patterns: tuple[re.Pattern[str], ...]) -> str:
    for pattern in patterns:
        text = pattern.sub(" ", text)
    return text
