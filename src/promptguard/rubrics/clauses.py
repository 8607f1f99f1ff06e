"""Where the clauses of a text begin and end."""

from __future__ import annotations

from collections.abc import Iterator

from promptguard.rubrics.patterns import LanguageRules


def clause_bounds(folded: str, language: LanguageRules) -> Iterator[tuple[int, int]]:
    """Yield the bounds of each clause in a folded text."""
    start = 0
    for stop in language.questions["clause"].pattern.finditer(folded):
        yield start, stop.start()
        start = stop.end()
    yield start, len(folded)
