"""Words: whether a string reads like language, and what a text is about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise

from promptguard.patterns import language_cache, packs

_ASCII_WORD = re.compile(r"[A-Za-z]+")
_LATIN_WORD = re.compile(r"[A-Za-zÀ-ɏ]+")
_OTHER_LETTER = re.compile(r"[Ͱ-῿\u2c00-\ud7ff\uf900-\ufdff\ufe70-\ufefc]")
# The last pair is Cyrillic io and ie, escaped because ie looks like the Latin e.
_ACCENTS = str.maketrans(
    "àáâãäåāăąçćčďèéêëēęěìíîïīłñńňòóôõöøōőřśšťùúûüūůűýÿźżž\u0451",
    "aaaaaaaaacccdeeeeeeeiiiiilnnnoooooooorsstuuuuuuuyyzzz\u0435",
)
_GLUE_WORDS = (
    "how to the a and you me of in is it for my your all with what this that i on are be give "
    "tell como de la el que un una los wie der die das man ein eine und ich mir comment le les "
    "une des"
)
_GLUE = frozenset(_GLUE_WORDS.split())
_PROSE_SHARE = 0.8
_MIN_LANGUAGE_LETTERS = 5
_MIN_OTHERS = 4
_MIN_CONTENT = 7
_KNOWN_SHARE = 0.6
_LETTER_SHARE = 0.6
_RUN = re.compile(r"[一-鿿㐀-䶿々]+|[ァ-ヺー]+|[가-힣]+|[^\W\d_぀-ヿ一-鿿㐀-䶿가-힣]+")
_MIN_LETTERS = 3
_MAX_CHARS = 4000


@lru_cache(maxsize=1)
def known_words() -> frozenset[str]:
    """Return the shipped vocabulary: lower case, without accents, two letters or more."""
    source = files("promptguard").joinpath("data/text/words.txt").read_text(encoding="utf-8")
    return frozenset(line for line in source.split("\n") if line and line[0] != "#")


def bare(word: str) -> str:
    """Return `word` in lower case, without accents and in its own script, as in the vocabulary."""
    return word.casefold().translate(_ACCENTS)


def is_word(word: str) -> bool:
    """Return whether the vocabulary knows `word`."""
    return bare(word) in known_words()


def reads_like_language(text: str) -> bool:
    """Return whether `text` is mostly letters that form known words or a non-Latin script."""
    visible = sum(not char.isspace() for char in text)
    latin = _LATIN_WORD.findall(text)
    found = _OTHER_LETTER.findall(text)
    others, letters = len(found), sum(map(len, latin)) + len(found)
    if letters < _LETTER_SHARE * visible or not _is_readable(text):
        return False
    # There is no vocabulary for other scripts; several different letters must do.
    if others >= _MIN_OTHERS and others >= letters - others and len(set(found)) >= _MIN_OTHERS:
        return True
    known = [len(word) for word in latin if is_word(word)]
    is_known = max(known, default=0) >= 3 and sum(known) / (letters - others) >= _KNOWN_SHARE
    return letters >= _MIN_LANGUAGE_LETTERS and is_known


def reads_like_prose(text: str, content_words: int = 2) -> bool:
    """Return whether `text` is known Latin words throughout, several of them content words, with
    the glue that no sentence lacks: the test for notations that noise often fits."""
    words = _ASCII_WORD.findall(text.lower())
    known = [word for word in words if len(word) == 1 or is_word(word)]
    if sum(map(len, known)) < _PROSE_SHARE * sum(map(len, words)):
        return False
    content = {word for word in known if len(word) > 2}
    is_enough = len(content) >= content_words and sum(map(len, content)) >= _MIN_CONTENT
    return is_enough and not _GLUE.isdisjoint(known)


def segment(letters: str) -> str | None:
    """Return run-together `letters` as known words, fewest first; None where it cannot be."""
    known = known_words()
    folded = bare(letters)
    # Casefolding makes two letters of some, and the places would no longer fit.
    if len(folded) != len(letters):
        return None
    best: list[tuple[int, int] | None] = [(0, 0)] + [None] * len(folded)
    for end in range(1, len(folded) + 1):
        for start in range(max(0, end - 16), end):
            before = best[start]
            # The vocabulary holds words of two letters or more.
            if before is None or (folded[start:end] not in known and folded[start:end] != "a"):
                continue
            # Words of two letters fit nearly any run, so that they cost more than longer ones.
            cost = before[0] + (1 if end - start > 2 else 3)
            current = best[end]
            if current is None or cost < current[0]:
                best[end] = (cost, start)
    words: list[str] = []
    end = len(letters)
    while end:
        step = best[end]
        if step is None:
            return None
        words.append(letters[step[1] : end])
        end = step[1]
    return " ".join(reversed(words))


def _is_readable(text: str) -> bool:
    return text.replace("\r\n", "").replace("\n", "").replace("\t", "").isprintable()


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
    every = packs("stopwords")
    words, pairs, particles = (
        [word for pack in every for entry in pack.of_kind(kind) for word in entry.words]
        for kind in ("word", "pair", "particle")
    )
    return frozenset(map(bare, words)), frozenset(pairs), tuple(particles)


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
