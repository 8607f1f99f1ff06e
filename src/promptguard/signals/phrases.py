"""What kind of thing is being said, told by patterns in eight languages."""

from __future__ import annotations

import tomllib
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import re2

from promptguard.errors import DataError
from promptguard.text.terms import key_terms
from promptguard.text.vocabulary import bare

LANGUAGES = ("en", "ja", "zh", "ko", "es", "fr", "de", "ru")
_SAME = str.maketrans("’‘ʼ`´", "'''''")


class Phrase(StrEnum):
    """Kinds of phrases; each has a table in every language file."""

    DEFINITION = "definition"
    MECHANISM = "mechanism"
    WEAKNESS = "weakness"
    EXPLOIT = "exploit"
    HYPOTHETICAL = "hypothetical"
    META_INSTRUCTION = "meta_instruction"
    REFUSAL = "refusal"
    IDIOM = "idiom"
    HEDGE = "hedge"
    STEP = "step"
    QUANTITY = "quantity"
    DIRECTED = "directed"
    EXPLORATORY = "exploratory"
    EDUCATIONAL = "educational"
    PROFESSIONAL = "professional"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhraseRules:
    """The patterns of one kind in one language, with examples that must and must not match."""

    patterns: tuple[str, ...]
    matches: tuple[str, ...]
    ignores: tuple[str, ...]


@lru_cache(maxsize=4)
def matchable(text: str) -> str:
    """Return the form the patterns are written for: no case, accents or curly apostrophes.

    Cached for the few calls that one turn makes with the same text.
    """
    if text.isascii():
        return " ".join(text.lower().split())
    plain = unicodedata.normalize("NFKC", text).translate(_SAME)
    return " ".join(bare(plain).split())


def says(phrase: Phrase, text: str) -> bool:
    """Return whether `text` (already matchable) contains a phrase of this kind."""
    return _compiled(phrase).search(text) is not None


def count(phrase: Phrase, text: str) -> int:
    """Return how many phrases of this kind `text` (already matchable) contains."""
    return sum(1 for _ in _compiled(phrase).finditer(text))


def without(phrase: Phrase, text: str) -> str:
    """Return `text` (already matchable) with phrases of this kind taken out."""
    left: str = _compiled(phrase).sub(" ", text)
    return left


def is_hypothetical(folded: str) -> bool:
    """Return whether the text puts its request into a story, a game or an if."""
    return says(Phrase.HYPOTHETICAL, matchable(folded))


def is_meta_instruction(folded: str) -> bool:
    """Return whether the text speaks of the assistant's own instructions, rules or role."""
    return says(Phrase.META_INSTRUCTION, matchable(folded))


def is_frame(term: str) -> bool:
    """Return whether a key term frames a question ("weakness", "work") and names no subject."""
    exact, stems = _frames()
    return term in exact or term.startswith(stems)


@cache
def phrase_rules(language: str) -> dict[Phrase, PhraseRules]:
    """Return every kind's rules in one language."""
    body = _language_file(language)
    return {phrase: _rules(body, language, phrase) for phrase in Phrase}


@cache
def _compiled(phrase: Phrase) -> Any:
    patterns = [p for lang in LANGUAGES for p in phrase_rules(lang)[phrase].patterns]
    try:
        return re2.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    except re2.error:
        raise DataError(f"A pattern of the kind {phrase.value} is not valid RE2.") from None


@cache
def _frames() -> tuple[frozenset[str], tuple[str, ...]]:
    words = [word for lang in LANGUAGES for word in _language_file(lang)["frame"]]
    whole = [word for word in words if not word.endswith("*")]
    pieces = frozenset(term for word in whole for term in (word, *key_terms(word)))
    return pieces, tuple(word[:-1] for word in words if word.endswith("*"))


def _rules(body: dict[str, Any], language: str, phrase: Phrase) -> PhraseRules:
    table = body.get(phrase.value)
    if not isinstance(table, dict) or set(table) != {"patterns", "matches", "ignores"}:
        raise DataError(f"phrases/{language}.toml needs a full table [{phrase.value}].")
    return PhraseRules(
        patterns=tuple(table["patterns"]),
        matches=tuple(table["matches"]),
        ignores=tuple(table["ignores"]),
    )


@cache
def _language_file(language: str) -> dict[str, Any]:
    path = files("promptguard").joinpath(f"data/lexicon/phrases/{language}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))
