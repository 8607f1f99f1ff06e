"""What a text is about, in a few words that can be compared across turns."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise

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


@lru_cache(maxsize=1)
def _stop_words() -> tuple[frozenset[str], frozenset[str], tuple[str, ...]]:
    source = files("promptguard").joinpath("data/text/stopwords.toml").read_text(encoding="utf-8")
    body = tomllib.loads(source)
    words = frozenset(bare(word) for group in body["words"].values() for word in group.split())
    return words, frozenset(body["pairs"]["cjk"].split()), tuple(body["particles"]["ko"].split())


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
