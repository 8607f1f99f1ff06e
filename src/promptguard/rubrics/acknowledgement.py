"""Whether a turn says that its speaker's position has changed."""

from __future__ import annotations

import re

from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import Acknowledgements, LanguageRules
from promptguard.rubrics.position import Span

_BEFORE = 60
_AFTER = 30
_SENTENCE_START = re.compile(r"[.!?;。\n]")


def find_acknowledgement(text: str, language: LanguageRules) -> Span | None:
    """Return the first admission of a change anywhere in `text`; a denied one does not count."""
    folded = fold(text)
    found = [
        match
        for pattern in language.acknowledgements.patterns
        for match in pattern.finditer(folded)
        if not _is_denied(match, folded, language.acknowledgements)
    ]
    if not found:
        return None
    first = min(found, key=lambda match: (match.start(), -match.end()))
    return Span(start=first.start(), end=first.end(), text=text[first.start() : first.end()])


def _is_denied(match: re.Match[str], folded: str, rules: Acknowledgements) -> bool:
    before = _SENTENCE_START.split(folded[max(0, match.start() - _BEFORE) : match.start()])[-1]
    if any(pattern.search(before) for pattern in rules.denials):
        return True
    after = folded[match.end() : match.end() + _AFTER]
    return rules.denial_after is not None and rules.denial_after.search(after) is not None
