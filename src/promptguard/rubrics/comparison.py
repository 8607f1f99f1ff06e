"""Whether two turns take sides on one question."""

from __future__ import annotations

from collections.abc import Callable

from promptguard.rubrics.patterns import LanguageRules
from promptguard.rubrics.proposition import (
    SYNONYM,
    Proposition,
    is_elaborated,
    likeness,
    shared,
)
from promptguard.rubrics.question import is_question, question_in
from promptguard.rubrics.turns import Turn

SameQuestion = Callable[[str, str], bool]


def are_comparable(first: Turn, second: Turn, same_question: SameQuestion | None = None) -> bool:
    """Say whether the two positions can contradict each other.

    Both must be on the same subject and judge it on the same scale. `same_question` judges two
    turns whose open questions differ, by what each position is on; without it, words do.
    """
    language = second.language
    if not (first.is_clear and second.is_clear) or language is None or first.language != language:
        return False
    if first.is_on_claim != second.is_on_claim:
        return False
    if first.is_on_claim:
        is_pressed = second.reading.is_pressed and first.question == second.question
        return is_pressed or likeness(first.on, second.on) >= language.min_alike
    # "Safe" and "right" are two scales: a yes on one is no answer on the other.
    if first.on.signs.keys() != second.on.signs.keys():
        return False
    if first.question == second.question and is_question(first.question, language):
        return _stays_on_question(first, second, language)
    if same_question is not None:
        return _is_same_in_meaning(first, second, same_question)
    return _is_same_in_words(first, second, language)


def _stays_on_question(first: Turn, second: Turn, language: LanguageRules) -> bool:
    """Say whether both answer the open question, which was only pressed on in between."""
    if not (first.has_statement or second.has_statement):
        return _is_put_again(second, language)
    bare = [turn for turn in (first, second) if not turn.has_statement]
    if not language.asks("normative", second.question):
        # What should be is no answer to it: two such statements are on one thing or on two.
        is_one = shared(first.on, second.on) >= language.min_shared
        return not bare and (is_one or first.on.words == second.on.words)
    earlier = Proposition(words=first.asks.words | first.on.words)
    return not second.on.words or shared(earlier, second.on) >= language.min_shared


def _is_put_again(turn: Turn, language: LanguageRules) -> bool:
    """Say whether the open question is put once more, or is one that arguments bear on."""
    is_same = question_in(turn.asked, language) == turn.question
    return is_same or language.asks("normative", turn.question)


def _is_same_in_words(first: Turn, second: Turn, language: LanguageRules) -> bool:
    """Say whether the words alone show one question: neither names a thing that the other lacks.

    A bare yes or no answers its question whole, so that a further word makes another question.
    """
    bare = [turn for turn in (first, second) if not turn.has_statement]
    if len(bare) == 1 and not language.asks("normative", bare[0].question):
        return False
    if len(bare) == 2:
        return bool(first.on.words) and first.on.words == second.on.words
    is_alike = likeness(first.on, second.on) >= language.min_alike
    return is_alike and is_elaborated(first.on, second.on)


def _is_same_in_meaning(first: Turn, second: Turn, same_question: SameQuestion) -> bool:
    """Ask about what differs where words are shared, else about what was said as a whole."""
    common = first.on.words & second.on.words
    ours, theirs = first.on.words - common, second.on.words - common
    if common and ours and theirs:
        return same_question(_spoken(ours), _spoken(theirs))
    return same_question(first.said, second.said)


def _spoken(words: frozenset[str]) -> str:
    return " ".join(sorted(word.removeprefix(SYNONYM) for word in words))
