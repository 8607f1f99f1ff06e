"""What kind of phrase a text contains (the section `phrases` of every language), and what
kind of answer a reply is: refused, complied in part, wholly or in detail.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any

from promptguard.patterns import Entry, any_of, language_cache, on_change, packs
from promptguard.signals import read_tuning
from promptguard.state import ReplyKind
from promptguard.text.vocabulary import bare, key_terms

_SECTION = "phrases"
_SAME = str.maketrans("’‘ʼ`´", "'''''")
_FENCE = "```"


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


# What users say; the others are the assistant's.
_ASKING = (
    Phrase.DEFINITION,
    Phrase.MECHANISM,
    Phrase.WEAKNESS,
    Phrase.EXPLOIT,
    Phrase.HYPOTHETICAL,
    Phrase.META_INSTRUCTION,
    Phrase.DIRECTED,
    Phrase.EXPLORATORY,
    Phrase.EDUCATIONAL,
    Phrase.PROFESSIONAL,
)


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


@lru_cache(maxsize=8)
def phrases_in(text: str) -> frozenset[Phrase]:
    """Return the kinds of phrases in a user's text, told once for all signals of a turn."""
    read = matchable(text)
    return frozenset(phrase for phrase in _ASKING if says(phrase, read))


on_change(phrases_in.cache_clear)


def without_frames(terms: Iterable[str]) -> list[str]:
    """Return the key terms that name a subject, without what frames a question ("weakness")."""
    exact, stems = _frames()
    return [term for term in terms if term not in exact and not term.startswith(stems)]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tuning:
    opening_chars: int
    refusal_chars: int
    read_chars: int
    steps: int
    quantities: int


@lru_cache(maxsize=4)
def classify_reply(text: str) -> ReplyKind:
    """Return what kind of answer `text` is; remembered, since it is watched and then recorded.

    A refusal opens an answer; one that goes on at length, gives operational detail all the same
    or comes only later is partial. An empty answer is none.
    """
    tuning = _tuning()
    read = without(Phrase.IDIOM, matchable(text[: tuning.read_chars])).strip()
    if not read:
        return ReplyKind.NONE
    is_operational = _is_operational(text[: tuning.read_chars], read, tuning)
    if says(Phrase.REFUSAL, read[: tuning.opening_chars]):
        goes_on = is_operational or len(read) > tuning.refusal_chars
        return ReplyKind.PARTIAL if goes_on else ReplyKind.REFUSED
    if says(Phrase.REFUSAL, read) or says(Phrase.HEDGE, read):
        return ReplyKind.PARTIAL
    return ReplyKind.OPERATIONAL if is_operational else ReplyKind.COMPLIED


def _is_operational(text: str, read: str, tuning: _Tuning) -> bool:
    """Return whether the answer can be carried out: code, numbered steps, or exact amounts."""
    if text.count(_FENCE) >= 2:
        return True
    return (
        count(Phrase.STEP, read) >= tuning.steps
        or count(Phrase.QUANTITY, read) >= tuning.quantities
    )


on_change(classify_reply.cache_clear)


@cache
def _tuning() -> _Tuning:
    return read_tuning("replies", _Tuning)
