"""Signal `keywords`: words of the lexicon, weighed by how rare they are in innocent text."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from promptguard.errors import DataError
from promptguard.patterns import language_cache, packs
from promptguard.patterns.wordlist import Found, WordList
from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS, read_tuning
from promptguard.signals.phrases import matchable
from promptguard.text.normalize import fold
from promptguard.verdict import SignalScore

_NAMED_TERMS = 4


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tuning:
    scale: float


@SIGNALS.register("keywords")
def keywords(ctx: TurnContext) -> SignalScore:
    """Return 1 - exp(-Σ tf·idf·severity / scale) of the riskiest view of the message."""
    best, terms, where = _sum(ctx.views.folded)
    for view in ctx.views.decoded:
        total, found, _ = _sum(fold(view.text))
        if total > best:
            best, terms, where = total, found, f" (decoded {view.method})"
    return SignalScore(
        name="keywords",
        score=1.0 - math.exp(-best / _tuning().scale),
        reason=_names(terms) + where,
        parts={"sum": best},
    )


def _sum(folded: str) -> tuple[float, tuple[Term, ...], str]:
    counts = Counter(hit.term for hit in shipped_lexicon().hits(folded))
    total = sum((1.0 + math.log(times)) * term.weight for term, times in counts.items())
    ordered = sorted(counts, key=lambda term: (-term.weight, term.text))
    return total, tuple(ordered), ""


def _names(terms: Iterable[Term]) -> str:
    named = [f"{term.family}: {term.text}" for term in terms]
    more = f" and {len(named) - _NAMED_TERMS} more" if len(named) > _NAMED_TERMS else ""
    return "; ".join(named[:_NAMED_TERMS]) + more


@cache
def _tuning() -> _Tuning:
    return read_tuning("keywords", _Tuning)
