"""Which words of the lexicon a text contains, on word boundaries: the section `lexicon`."""

from __future__ import annotations

import hashlib
import json
import tomllib
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from promptguard.errors import DataError
from promptguard.patterns import language_cache, packs
from promptguard.patterns.wordlist import Found, WordList
from promptguard.signals.phrases import matchable


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


Hit = Found[Term]


class Lexicon:
    """A set of terms and their index. Immutable once made."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self.terms = tuple(terms)
        self._words = WordList(((term.text, term) for term in self.terms), matchable)

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
        return self._words.find(matchable(folded))


def lexicon_digest(terms: Iterable[Term]) -> str:
    """Return a hash of which terms there are, to tell whether an IDF table was made for them."""
    lines = sorted(f"{term.language}\t{term.text}" for term in terms)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@language_cache
def shipped_lexicon() -> Lexicon:
    """Return the lexicon of every known language with its learned IDF table."""
    table = json.loads(_read("idf.json"))
    return Lexicon(read_terms(table["idf"]))


def read_terms(idf: Mapping[str, Mapping[str, float]]) -> tuple[Term, ...]:
    """Return the bundled terms; one that `idf` does not list was never seen in innocent text."""
    return tuple(
        Term(
            text=text,
            language=entry.language,
            family=entry.kind,
            severity=_severity(entry.kind, entry.id),
            idf=idf.get(entry.language, {}).get(text, 1.0),
        )
        for pack in packs("lexicon")
        for entry in pack.entries
        for text in dict.fromkeys(entry.words)
    )


def _severity(family: str, where: str) -> float:
    table = _severities()
    if family not in table:
        raise DataError(f"{where} names the unknown family {family!r}.")
    return table[family]


@cache
def _severities() -> Mapping[str, float]:
    table: dict[str, float] = tomllib.loads(_read("families.toml"))["severity"]
    return table


def _read(name: str) -> str:
    return files("promptguard").joinpath(f"data/lexicon/{name}").read_text(encoding="utf-8")
