"""Whether a turn says that its speaker's position has changed."""

from __future__ import annotations

import re

from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import LanguageRules
from promptguard.rubrics.position import Span

_BEFORE = 60
_AFTER = 30
_SENTENCE_START = re.compile(r"[.!?;。\n]")


def find_acknowledgement(text: str, language: LanguageRules) -> Span | None:
    """Return the first admission of a change anywhere in `text`; a denied one does not count."""
    folded = fold(text)
    for match in language.acknowledgement.pattern.finditer(folded):
        start, end = match.start(), match.end()
        if not _is_denied(start, end, folded, language):
            return Span(start=start, end=end, text=text[start:end])
    return None


def _is_denied(start: int, end: int, folded: str, language: LanguageRules) -> bool:
    # A denial in the sentence before is about something else.
    before = _SENTENCE_START.split(folded[max(0, start - _BEFORE) : start])[-1]
    after = folded[end : end + _AFTER]
    denials = language.denials
    return any(
        name in denials and denials[name].fits(text)
        for name, text in (("before", before), ("within", folded[start:end]), ("after", after))
    )
