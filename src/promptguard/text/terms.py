"""What a text is about, in a few words that can be compared across turns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from promptguard.patterns import language_cache, packs
from promptguard.text.vocabulary import bare

_RUN = re.compile(r"[一-鿿㐀-䶿々]+|[ァ-ヺー]+|[가-힣]+|[^\W\d_぀-ヿ一-鿿㐀-䶿가-힣]+")
_MIN_LETTERS = 3
_MAX_CHARS = 4000


def key_terms(text: str, limit: int = 8) -> tuple[str, ...]:
    """Return up to `limit` content words, the most frequent first, then in order of appearance.

    Words are lower case, without accents, a plural `s` or a Korean particle, and are no stop
    words of the eight languages. Kanji, hanzi and katakana are given as pairs of characters.
    Of a long text the first 4,000 characters count.
    """
    counts = Counter(_terms(text[:_MAX_CHARS]))
    return tuple(term for term, _ in counts.most_common(max(0, limit)))


@language_cache
def _stop_words() -> tuple[frozenset[str], frozenset[str], tuple[str, ...]]:
    words, pairs, particles = (_listed(kind) for kind in ("word", "pair", "particle"))
    return frozenset(map(bare, words)), frozenset(pairs), tuple(particles)


def _listed(kind: str) -> list[str]:
    entries = [entry for pack in packs("stopwords") for entry in pack.of_kind(kind)]
    return [word for entry in entries for word in entry.words]


def _terms(text: str) -> Iterator[str]:
    words, pairs, particles = _stop_words()
    for run in _RUN.findall(text):
        first = run[0]
        if "가" <= first <= "힣":
            term = _without_particle(run, particles)
            if len(term) > 1 and term not in words:
                yield term
        elif "㐀" <= first <= "鿿" or "ァ" <= first <= "ー" or first == "々":
            for pair in map("".join, pairwise(run)):
                if pair not in pairs:
                    yield pair
        else:
            word = bare(run)
            if len(word) >= _MIN_LETTERS and word not in words:
                yield word[:-1] if len(word) > 4 and word[-1] == "s" and word[-2] != "s" else word


def _without_particle(word: str, particles: tuple[str, ...]) -> str:
    for particle in particles:
        if len(word) - len(particle) >= 2 and word.endswith(particle):
            return word[: -len(particle)]
    return word
