"""Which words of the lexicon a text contains, on word boundaries, in eight languages."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from promptguard.errors import DataError
from promptguard.signals.phrases import LANGUAGES, matchable

_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff々]")
_KATAKANA = re.compile("[ァ-ヺー]")
_WORD = re.compile(r"[^\W_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")
_GAP_WORDS = 3
_LONGEST_WORD = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One entry: `text` as the lexicon spells it, and how rare it is in innocent text, in [0,1]."""

    text: str
    language: str
    family: str
    severity: float
    idf: float = 1.0

    @property
    def weight(self) -> float:
        """What one occurrence counts."""
        return self.severity * self.idf


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a term was found."""

    term: Term
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """One word of a term; `reach` is how many words ahead it may stand."""

    word: str
    is_stem: bool
    reach: int

    def fits(self, word: str) -> bool:
        return word.startswith(self.word) if self.is_stem else word == self.word


class Lexicon:
    """A set of terms and their index. Immutable once made."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self.terms = tuple(terms)
        self._words: dict[str, list[tuple[Term, tuple[_Piece, ...]]]] = {}
        self._stems: dict[str, list[tuple[Term, tuple[_Piece, ...]]]] = {}
        self._literals: dict[str, list[tuple[Term, str]]] = {}
        for term in self.terms:
            self._index(term)
        self._lengths = tuple(sorted({len(stem) for stem in self._stems}))
        self._starts = lru_cache(maxsize=8192)(self._starts_uncached)

    def hits(self, folded: str) -> tuple[Hit, ...]:
        """Return every occurrence in a folded text; where they overlap, the weightiest.

        They come in order; offsets are those of the text's matchable form.
        """
        found = self.all_hits(folded)
        found.sort(key=lambda hit: (-hit.term.weight, hit.start - hit.end, hit.start))
        starts: list[int] = []
        kept: list[Hit] = []
        for hit in found:
            at = bisect_left(starts, hit.start)
            is_free_before = at == 0 or kept[at - 1].end <= hit.start
            if is_free_before and (at == len(kept) or hit.end <= kept[at].start):
                starts.insert(at, hit.start)
                kept.insert(at, hit)
        return tuple(kept)

    def all_hits(self, folded: str) -> list[Hit]:
        """Return every occurrence, overlapping ones too."""
        text = matchable(folded)
        found = list(self._spaced_hits(text))
        if not text.isascii() and _CJK.search(text):
            found.extend(self._literal_hits(text))
        return found

    def _spaced_hits(self, text: str) -> Iterator[Hit]:
        tokens = list(_WORD.finditer(text))
        words = [token[0][:_LONGEST_WORD] for token in tokens]
        for index, word in enumerate(words):
            for term, rest in self._starts(word):
                last = _last_word(words, index, rest)
                if last >= 0:
                    yield Hit(term, tokens[index].start(), tokens[last].end())

    def _literal_hits(self, text: str) -> Iterator[Hit]:
        get = self._literals.get
        for index, char in enumerate(text):
            for term, literal in get(char, ()):
                end = index + len(literal)
                if text.startswith(literal, index) and not _cuts_katakana(text, index, end):
                    yield Hit(term, index, end)

    def _starts_uncached(self, word: str) -> tuple[tuple[Term, tuple[_Piece, ...]], ...]:
        found = list(self._words.get(word, ()))
        for length in self._lengths:
            if length > len(word):
                break
            found.extend(self._stems.get(word[:length], ()))
        return tuple(found)

    def _index(self, term: Term) -> None:
        text = matchable(term.text)
        if _CJK.search(text):
            self._literals.setdefault(text[0], []).append((term, text))
            return
        first, *rest = _pieces(text)
        index = self._stems if first.is_stem else self._words
        index.setdefault(first.word, []).append((term, tuple(rest)))


def lexicon_digest(terms: Iterable[Term]) -> str:
    """Return a hash of which terms there are, to tell whether an IDF table was made for them."""
    lines = sorted(f"{term.language}\t{term.text}" for term in terms)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@cache
def shipped_lexicon() -> Lexicon:
    """Return the bundled lexicon with its learned IDF table."""
    table = json.loads(_read("idf.json"))
    return Lexicon(read_terms(table["idf"]))


def read_terms(idf: Mapping[str, Mapping[str, float]]) -> tuple[Term, ...]:
    """Return the bundled terms; one that `idf` does not list was never seen in innocent text."""
    severity: dict[str, float] = tomllib.loads(_read("families.toml"))["severity"]
    return tuple(
        Term(
            text=text,
            language=language,
            family=family,
            severity=_severity(severity, family, language),
            idf=idf.get(language, {}).get(text, 1.0),
        )
        for language in LANGUAGES
        for family, texts in _language_terms(language).items()
        for text in dict.fromkeys(texts)
    )


def _severity(table: Mapping[str, float], family: str, language: str) -> float:
    if family not in table:
        raise DataError(f"lexicon/{language}.toml names the unknown family {family!r}.")
    return table[family]


def _language_terms(language: str) -> dict[str, list[str]]:
    body: dict[str, Any] = tomllib.loads(_read(f"{language}.toml"))
    terms: dict[str, list[str]] = body["terms"]
    return terms


def _read(name: str) -> str:
    return files("promptguard").joinpath(f"data/lexicon/{name}").read_text(encoding="utf-8")


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
            if piece.fits(words[ahead]):
                index = ahead
                break
        else:
            return -1
    return index


def _cuts_katakana(text: str, start: int, end: int) -> bool:
    """Return whether a run of katakana goes on beyond either end: キル within スキル."""
    return bool(
        (start and _KATAKANA.match(text[start]) and _KATAKANA.match(text[start - 1]))
        or (end < len(text) and _KATAKANA.match(text[end - 1]) and _KATAKANA.match(text[end]))
    )
