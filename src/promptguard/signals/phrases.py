"""What kind of phrase a text contains: the section `phrases` of every language."""

from __future__ import annotations

import unicodedata
from enum import StrEnum
from functools import lru_cache
from typing import Any

from promptguard.patterns import Entry, any_of, language_cache, packs
from promptguard.text.vocabulary import bare, key_terms

_SECTION = "phrases"
_SAME = str.maketrans("’‘ʼ`´", "'''''")


class Phrase(StrEnum):
    """Kinds of phrases; each bundled language has an entry for every kind."""

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


@language_cache
def phrase_entries(phrase: Phrase) -> tuple[Entry, ...]:
    """Return the entries of one kind in every language."""
    return tuple(entry for pack in packs(_SECTION) for entry in pack.of_kind(phrase))


@language_cache
def _compiled(phrase: Phrase) -> Any:
    return any_of(phrase_entries(phrase))


@language_cache
def _frames() -> tuple[frozenset[str], tuple[str, ...]]:
    entries = [entry for pack in packs(_SECTION) for entry in pack.of_kind("frame")]
    words = [word for entry in entries for word in entry.words]
    whole = [word for word in words if not word.endswith("*")]
    pieces = frozenset(term for word in whole for term in (word, *key_terms(word)))
    return pieces, tuple(word[:-1] for word in words if word.endswith("*"))
