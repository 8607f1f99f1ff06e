"""Which covered language a text is in, or none."""

from __future__ import annotations

import re

from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import LanguageRules, RubricPatterns

_KANA = re.compile("[\u3041-\u309f\u30a1-\u30fa]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_OTHER_SCRIPT = re.compile("[\u0370-\u05ff\u0600-\u10ff\u1100-\u11ff\uac00-\ud7af]")
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_ACCENTED = re.compile("[¿¡à-öø-ÿąćęłńśźżğışőű]")
_FEW_WORDS = 4


def language_of(text: str, patterns: RubricPatterns) -> LanguageRules | None:
    """Return the rules for `text`, or None where its language is not covered or not to be told."""
    folded = fold(text)
    if _KANA.search(folded):
        return patterns.languages.get("ja")
    if len(_HAN.findall(folded)) * 4 > len(_WORD.findall(folded)):
        return patterns.languages.get("zh")
    if _OTHER_SCRIPT.search(folded):
        return None
    english = patterns.languages.get("en")
    return english if english and _looks_english(folded, english) else None


def shows_language(text: str, patterns: RubricPatterns) -> bool:
    """Say whether a text is long enough, and wordy enough, to show its language by itself."""
    folded = fold(text)
    if _KANA.search(folded) or _OTHER_SCRIPT.search(folded):
        return True
    if len(_WORD.findall(folded)) < _FEW_WORDS and not _ACCENTED.search(folded):
        return False
    english = patterns.languages.get("en")
    return bool(_HAN.search(folded)) or english is None or any(_counts(folded, english))


def _looks_english(folded: str, english: LanguageRules) -> bool:
    own, foreign = _counts(folded, english)
    return own > foreign


def _counts(folded: str, english: LanguageRules) -> tuple[int, int]:
    """Return how many words are English for sure, and how much speaks for another language."""
    words = _WORD.findall(folded)
    own = sum(word in english.function_words for word in words)
    foreign = sum(word in english.foreign_words for word in words)
    return own, foreign + len(_ACCENTED.findall(folded))
