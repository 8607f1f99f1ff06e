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
_NO_STATEMENT = 4


class LeadSense(StrEnum):
    """What a bare yes means after what was asked."""

    DIRECT = "direct"
    REVERSED = "reversed"
    CLAIM = "claim"
    VOID = "void"


def question_in(asked: str, language: LanguageRules) -> str:
    """Return the last question in `asked`, folded; its last sentence where it asks nothing.

    A question without a subject of its own takes the sentence before it along.
    """
    sentences = [
        piece.strip()
        for piece in language.question.sentence.findall(fold(asked))
        if re.search(r"\w", piece)
    ]
    places = [at for at, piece in enumerate(sentences) if _matches(language.question.asks, piece)]
    at = places[-1] if places else len(sentences) - 1
    if places and at and not subject_words(sentences[at], language):
        return f"{sentences[at - 1]} {sentences[at]}"
    return sentences[at] if sentences else ""


def continues(asked: str, language: LanguageRules) -> bool:
    """Say whether `asked` only presses on: it asks nothing, nothing new, or nothing definite."""
    rules = language.question
    if _matches(rules.topic_change, fold(asked)):
        return False
    question = question_in(asked, language)
    if not _matches(rules.asks, question) or _matches(rules.refers, question):
        return True
    return not subject_words(question, language)


def is_question(text: str, language: LanguageRules) -> bool:
    """Say whether a text asks something."""
    return _matches(language.question.asks, fold(text))


def is_normative(question: str, language: LanguageRules) -> bool:
    """Say whether a question can be answered by what should be."""
    return _matches(language.question.normative, question)


def wants_advice(asked: str, language: LanguageRules) -> bool:
    """Say whether `asked` wants to know what or how, so that "should" takes no side."""
    return _matches(language.question.advice, question_in(asked, language))


def lead_sense(asked: str, user: Side | None, language: LanguageRules) -> LeadSense:
    """Return how a bare yes or no is to be taken after `asked`.

    It is void after a request for information, a demand to confirm, and a negative that leaves
    it open; it is reversed where yes agrees that something should not be, and speaks of the
    user's claim where nothing is asked. `user` is the side of the user's own statements.
    """
    question = question_in(asked, language)
    rules = language.question
    if _matches((*rules.information, *rules.advice, *rules.confirms), question):
        return LeadSense.VOID
    if not _matches(rules.asks, question):
        return _sense_after_statement(asked, user, language)
    if rules.polar and not _matches(rules.polar, question):
        return LeadSense.VOID
    plain = _without(question, rules.neutral)
    if not _matches(rules.negated, plain):
        return LeadSense.DIRECT
    return LeadSense.REVERSED if _denies(plain, language) else LeadSense.VOID


def _sense_after_statement(asked: str, user: Side | None, language: LanguageRules) -> LeadSense:
    rules = language.question
    if user is not None or rules.polar:
        return LeadSense.CLAIM
    is_pressing = _matches(rules.presses, question_in(asked, language))
    return LeadSense.DIRECT if is_pressing or len(asked) <= _NO_STATEMENT else LeadSense.CLAIM


def shared_subject(left: str, right: str, language: LanguageRules) -> float:
    """Return the share of subject words that the text with fewer of them has in common."""
    ours, theirs = subject_words(left, language), subject_words(right, language)
    fewest = min(len(ours), len(theirs))
    return len(ours & theirs) / fewest if fewest else 0.0


def likeness(left: str, right: str, language: LanguageRules) -> float:
    """Return the share of all subject words of two texts that both have."""
    ours, theirs = subject_words(left, language), subject_words(right, language)
    return len(ours & theirs) / len(ours | theirs) if ours and theirs else 0.0


def subject_words(text: str, language: LanguageRules) -> frozenset[str]:
    """Return what a text is about: stems of words, Han characters, katakana words."""
    folded = _without(fold(text), language.question.fillers)
    stems = (
        _stem(word)
        for word in _WORD.findall(_CJK_UNIT.sub(" ", folded))
        if word.isascii() and len(word) > 1 and not _is_ignored(word, language)
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


def _is_ignored(word: str, language: LanguageRules) -> bool:
    ignored = language.question.ignored_words
    return word in ignored or word.removesuffix("s") in ignored


def _stem(word: str) -> str:
    shorter = _ENDING.sub("", word)
    return shorter if len(shorter) >= _SHORTEST_STEM else word.removesuffix("s")


def _matches(patterns: tuple[re.Pattern[str], ...], text: str) -> bool:
    return any(pattern.search(text) for pattern in patterns)


def _without(text: str, patterns: tuple[re.Pattern[str], ...]) -> str:
    for pattern in patterns:
        text = pattern.sub(" ", text)
    return text
