"""What a position is on: the words of its subject, and which way its judgement points.

Words with an opposite ("allow" and "ban", "right" and "wrong") are one concept with a sign, so
that no to "is it wrong?" and yes to "is it right?" are the same position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TypeVar

from promptguard.patterns.wordlist import TermMatch
from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import Found, LanguageRules

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+")
_CJK_UNIT = re.compile("[\u30a1-\u30fa\u30fc]{2,}|[\u3400-\u4dbf\u4e00-\u9fff]")
_ENDING = re.compile(r"(?:'s|ings?|edly|ed|ies|es|s|ly|ions?|e|y|en|er|em|n)$")
# Shorter ones are common to words that have nothing to do with each other.
_SHORTEST_STEM = 4
_Placed = TypeVar("_Placed", Found, TermMatch[tuple[str, int]])
SYNONYM = "="
"""Begins a subject word that stands for several of the language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposition:
    """Subject words and the signs of the concepts with an opposite."""

    words: frozenset[str] = frozenset()
    signs: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether it names nothing."""
        return not self.words and not self.signs

    def sign_on(self, concepts: frozenset[str]) -> int:
        """Return the product of the signs of `concepts`, 1 for those it lacks."""
        return prod(self.signs.get(name, 1) for name in concepts)


def proposition_of(text: str, language: LanguageRules) -> Proposition:
    """Return what `text` is about."""
    folded = language.questions.without("neutral", fold(text), " ")
    # The longest first.
    hits = sorted(language.scales.find(folded), key=lambda hit: (hit.start - hit.end, hit.start))
    signs: dict[str, int] = {}
    words: set[str] = set()
    rest = folded
    # From the end, so that the places of those before stay valid.
    for hit in sorted(apart(hits), key=lambda hit: -hit.start):
        rest = f"{rest[: hit.start]} {rest[hit.end :]}"
        name, sign = hit.term
        if sign:
            signs[name] = sign * signs.get(name, 1)
        else:
            words.add(f"{SYNONYM}{name}")
    return Proposition(words=frozenset(words | _words(rest, language)), signs=signs)


def shared(left: Proposition, right: Proposition) -> float:
    """Return the share of subject words that the one with fewer of them has in common."""
    fewest = min(len(left.words), len(right.words))
    return len(left.words & right.words) / fewest if fewest else 0.0


def likeness(left: Proposition, right: Proposition) -> float:
    """Return the share of all subject words that both have."""
    union = left.words | right.words
    return len(left.words & right.words) / len(union) if union else 0.0


def is_elaborated(left: Proposition, right: Proposition) -> bool:
    """Say whether one only adds to the other; each naming a thing of its own makes two subjects."""
    return left.words <= right.words or right.words <= left.words


def apart(items: Iterable[_Placed]) -> list[_Placed]:
    """Return those of the items, the best first, that overlap none before them."""
    kept: list[_Placed] = []
    taken = bytearray()
    for item in items:
        if taken.find(1, item.start, item.end) < 0:
            taken.extend(bytes(max(0, item.end - len(taken))))
            taken[item.start : item.end] = b"\1" * (item.end - item.start)
            kept.append(item)
    return kept


def _words(folded: str, language: LanguageRules) -> set[str]:
    text = language.questions.without("fillers", folded, " ")
    stems = (
        _stem(word)
        for word in _WORD.findall(_CJK_UNIT.sub(" ", text))
        if word.isascii() and len(word) > 1 and not _is_ignored(word, language)
    )
    return {*_CJK_UNIT.findall(text), *stems}


def _is_ignored(word: str, language: LanguageRules) -> bool:
    return word in language.ignored or word.removesuffix("s") in language.ignored


def _stem(word: str) -> str:
    shorter = _ENDING.sub("", word)
    return shorter if len(shorter) >= _SHORTEST_STEM else word.removesuffix("s")
