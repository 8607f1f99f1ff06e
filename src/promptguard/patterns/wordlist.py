"""Words and phrases found in a text in one pass, and the concepts they stand for.

`*` ends a stem, `...` stands for up to three words in between. Scripts that put no spaces between
words are searched for the letters themselves. A concept file has one table, `[concepts]`, from a
concept's name to the words of one language that stand for it, between bars (a list would take the
parser three times as long). The same names are used in every language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

from promptguard.patterns.languages import codes, language_cache, section_text
from promptguard.patterns.pack import letters, parse_concepts

_T = TypeVar("_T")
# Kana, Han, Thai, Lao, Burmese and Khmer are written without spaces.
_JOINED_SCRIPTS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff々"
# Python counts vowel signs as no letters, so that Indic and pointed words need their blocks named.
_SIGNS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
_JOINED = re.compile(f"[{_JOINED_SCRIPTS}]")
_WORD = re.compile(rf"(?:[^\W_{_JOINED_SCRIPTS}]|[{_SIGNS}])+")
_KATAKANA_PAIR = re.compile("[ァ-ヺー]{2}")
_GAP_WORDS = 3
_LONGEST_WORD = 40
SECTION = "concepts"
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TermMatch(Generic[_T]):
    """Where one of the terms occurs; `term` is what it stands for."""

    term: _T
    start: int
    end: int


class _Piece(NamedTuple):
    """One word of a term; `reach` is how many words ahead it may stand."""

    word: str
    is_stem: bool
    reach: int


class WordList(Generic[_T]):
    """Terms and what each of them stands for. Immutable once made.

    `fold` is how a term is spelled for matching; texts are given in the same spelling.
    """

    def __init__(self, terms: Iterable[tuple[str, _T]], fold: Callable[[str], str]) -> None:
        self._words: dict[str, list[tuple[_T, tuple[_Piece, ...]]]] = {}
        self._stems: dict[str, list[tuple[_T, tuple[_Piece, ...]]]] = {}
        self._literals: dict[str, list[tuple[_T, str]]] = {}
        for text, item in terms:
            self._index(fold(text), item)
        self._lengths = tuple(sorted({len(stem) for stem in self._stems}))
        # The same few thousand words make up most texts.
        self._starts = lru_cache(maxsize=8192)(self._starts_uncached)

    def find(self, text: str) -> list[TermMatch[_T]]:
        """Return every occurrence in a folded text, overlapping ones too."""
        has_joined = self._literals and not text.isascii() and _JOINED.search(text)
        return [*self._spaced(text), *(self._joined(text) if has_joined else ())]

    def _spaced(self, text: str) -> Iterator[TermMatch[_T]]:
        tokens = list(_WORD.finditer(text))
        # Words are keys of a cache, which endless ones would fill.
        words = [token[0][:_LONGEST_WORD] for token in tokens]
        for index, word in enumerate(words):
            for item, rest in self._starts(word):
                last = _last_word(words, index, rest)
                if last >= 0:
                    yield TermMatch(item, tokens[index].start(), tokens[last].end())

    def _joined(self, text: str) -> Iterator[TermMatch[_T]]:
        get = self._literals.get
        # Literals are filed under their first two characters, or under the only one.
        for index, pair in enumerate(pairwise(f"{text}\n")):
            for key in (pair[0], "".join(pair)):
                for item, literal in get(key, ()):
                    end = index + len(literal)
                    if text.startswith(literal, index) and not _cuts_katakana(text, index, end):
                        yield TermMatch(item, index, end)

    def _starts_uncached(self, word: str) -> tuple[tuple[_T, tuple[_Piece, ...]], ...]:
        found = list(self._words.get(word, ()))
        for length in self._lengths:
            if length <= len(word):
                found.extend(self._stems.get(word[:length], ()))
        return tuple(found)

    def _index(self, text: str, item: _T) -> None:
        if _JOINED.search(text):
            literal = text.removesuffix("*")
            self._literals.setdefault(literal[:2], []).append((item, literal))
            return
        first, *rest = _pieces(text)
        index = self._stems if first.is_stem else self._words
        index.setdefault(first.word, []).append((item, tuple(rest)))


def _pieces(text: str) -> Iterator[_Piece]:
    reach = 1
    for chunk in text.split():
        if chunk == "...":
            reach = 1 + _GAP_WORDS
            continue
        words = _WORD.findall(chunk)
        for position, word in enumerate(words):
            is_stem = chunk.endswith("*") and position == len(words) - 1
            yield _Piece(word, is_stem, reach)
            reach = 1


def _last_word(words: list[str], index: int, rest: tuple[_Piece, ...]) -> int:
    """Return the index of the last word of a term that starts at `index`, -1 where it does not."""
    for piece in rest:
        for ahead in range(index + 1, min(index + 1 + piece.reach, len(words))):
            word = words[ahead]
            if word.startswith(piece.word) if piece.is_stem else word == piece.word:
                index = ahead
                break
        else:
            return -1
    return index


def _cuts_katakana(text: str, start: int, end: int) -> bool:
    """Return whether a run of katakana goes on beyond either end: キル within スキル."""
    edges = (text[max(0, start - 1) : start + 1], text[end - 1 : end + 1])
    return any(map(_KATAKANA_PAIR.match, edges))


class Concepts:
    """The words of every concept in every language given. Immutable once made."""

    def __init__(self, tables: Iterable[Mapping[str, Iterable[str]]]) -> None:
        meanings: dict[str, dict[str, None]] = {}
        for table in tables:
            for concept, words in table.items():
                for word in words:
                    meanings.setdefault(letters(word), {})[concept] = None
        # One item per word: a word of several languages or concepts is looked up once.
        self._words = WordList(((word, tuple(names)) for word, names in meanings.items()), letters)

    def match(self, folded: str) -> dict[str, tuple[Span, ...]]:
        """Return the concepts of a folded text, each with its places in order.

        Takes time linear in the text.
        """
        found: dict[str, list[Span]] = {}
        spelled = letters(folded)
        sources: Sequence[int] = range(len(folded))
        if len(spelled) != len(folded):
            # A ligature is spelled with two letters, which both lie where it does.
            sources = [at for at, char in enumerate(folded) for _ in letters(char)]
        for hit in self._words.find(spelled):
            place = sources[hit.start], sources[hit.end - 1] + 1
            for concept in hit.term:
                found.setdefault(concept, []).append(place)
        return {concept: tuple(sorted(set(spans))) for concept, spans in found.items()}


@language_cache
def shipped_concepts() -> Concepts:
    """Return the concepts of every known language that has them."""
    return Concepts(
        parse_concepts(section_text(code, SECTION), f"{code}/{SECTION}.toml")
        for code in codes(SECTION)
    )
