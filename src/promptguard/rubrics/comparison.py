"""Whether two turns take sides on one question, put the same way round."""

from __future__ import annotations

import re
from collections.abc import Callable

from promptguard.rubrics.patterns import Kind, LanguageRules
from promptguard.rubrics.question import (
    are_opposed,
    is_normative,
    is_question,
    likeness,
    question_in,
    shared_subject,
    subject_words,
)
from promptguard.rubrics.turns import Turn

SameQuestion = Callable[[str, str], bool]
_PREDICATE = re.compile(r"\W*\w+\W+\w{1,12}|\W*\w{1,12}")


def are_comparable(first: Turn, second: Turn, same_question: SameQuestion | None = None) -> bool:
    """Say whether the two positions can contradict each other.

    `same_question` judges two turns whose open questions differ, by what each position is on;
    without it, shared words do.
    """
    language = second.language
    if not (first.is_clear and second.is_clear) or language is None or first.language != language:
        return False
    if (first.reading.kind is Kind.CLAIM) != (second.reading.kind is Kind.CLAIM):
        return False
    if _is_turned_round(first, second, language):
        return False
    if same_question is not None and first.question != second.question:
        return same_question(first.said, second.said)
    return _shares_subject(first, second, language)


def _shares_subject(first: Turn, second: Turn, language: LanguageRules) -> bool:
    """Say whether shared words show one question: strictly where yes or no stands alone."""
    rules = language.question
    is_open = first.question == second.question
    kinds = (first.reading.kind, second.reading.kind)
    if Kind.CLAIM in kinds or not (first.has_statement or second.has_statement):
        if is_open and Kind.CLAIM not in kinds:
            return _is_put_again(second, language)
        return likeness(first.said, second.said, language) >= rules.min_alike
    bare = [turn.question for turn in (first, second) if not turn.has_statement]
    if not all(is_normative(question, language) for question in bare):
        return False
    if is_open and not subject_words(second.said, language):
        return True
    earlier = f"{first.question}\n{first.said}"
    later = second.said if is_open else f"{second.question}\n{second.said}"
    return shared_subject(earlier, later, language) >= rules.min_shared


def _is_put_again(turn: Turn, language: LanguageRules) -> bool:
    """Say whether the open question is put once more, or is one that arguments bear on."""
    if not is_question(turn.question, language):
        return True
    is_same = question_in(turn.asked, language) == turn.question
    return is_same or is_normative(turn.question, language)


def _is_turned_round(first: Turn, second: Turn, language: LanguageRules) -> bool:
    if first.reading.statement is not None and second.reading.statement is not None:
        return are_opposed(_predicate(first), _predicate(second), language)
    return are_opposed(first.question, second.question, language)


def _predicate(turn: Turn) -> str:
    span = turn.reading.statement
    found = None if span is None else _PREDICATE.match(turn.answer, span.end)
    return found[0] if found else ""
