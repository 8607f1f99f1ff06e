"""What is recognised by its wording: kinds of phrases, kinds of replies, and words of the lexicon.

Signal `keywords`. Phrases are the section `phrases` of every language; a reply is refused,
complied with in part, wholly or in detail.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from promptguard.conversation import without_lone_surrogates
from promptguard.errors import DataError
from promptguard.patterns import Entry, any_of, language_cache, on_change, packs
from promptguard.patterns.wordlist import TermMatch, WordList
from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS, read_tuning
from promptguard.state import ReplyKind
from promptguard.text.normalize import fold
from promptguard.text.vocabulary import bare, key_terms
from promptguard.verdict import SignalScore

_SECTION = "phrases"
# What keyboards and editors put in place of an apostrophe.
_SAME = str.maketrans("’‘ʼ`´", "'''''")
_FENCE = "```"
_NAMED_TERMS = 4


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
        # Neither compatibility forms nor accents occur in ASCII, which most texts are.
        return " ".join(text.lower().split())
    # RE2 reads UTF-8, which has no form for half a surrogate pair.
    plain = unicodedata.normalize("NFKC", without_lone_surrogates(text)).translate(_SAME)
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
    """Return the kinds of phrases in a user's text, found once for all signals of a turn."""
    read = matchable(text)
    return frozenset(phrase for phrase in _ASKING if says(phrase, read))


# A language that is added later must not meet answers given without it.
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
    # Key terms of Chinese and Japanese are pairs of characters, so that frames count by theirs.
    pieces = frozenset(term for word in whole for term in (word, *key_terms(word)))
    return pieces, tuple(word[:-1] for word in words if word.endswith("*"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReplyTuning:
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
    tuning = _reply_tuning()
    # Idioms go first: "I can't believe how good it is" refuses nothing.
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


def _is_operational(text: str, read: str, tuning: _ReplyTuning) -> bool:
    """Return whether the answer can be carried out: code, numbered steps, or exact amounts."""
    if text.count(_FENCE) >= 2:
        return True
    return (
        count(Phrase.STEP, read) >= tuning.steps
        or count(Phrase.QUANTITY, read) >= tuning.quantities
    )


on_change(classify_reply.cache_clear)


@cache
def _reply_tuning() -> _ReplyTuning:
    return read_tuning("replies", _ReplyTuning)


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


Hit = TermMatch[Term]


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
        # Whatever comes first here keeps its place against all that overlaps it.
        found.sort(key=lambda hit: (-hit.term.weight, hit.start - hit.end, hit.start))
        starts: list[int] = []
        kept: list[Hit] = []
        for hit in found:
            # What is kept never overlaps, so that only the two neighbours need to be looked at.
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
class _KeywordTuning:
    scale: float


@SIGNALS.register("keywords")
def keywords(ctx: TurnContext) -> SignalScore:
    """Return how much the message says in words that attacks use, in its riskiest view.

    The score is 1 - exp(-Σ tf·idf·severity / scale).
    """
    (best, terms), where = _sum(ctx.views.folded), ""
    for view in ctx.views.decoded:
        total, found = _sum(fold(view.text))
        if total > best:
            best, terms, where = total, found, f" (decoded {view.method})"
    return SignalScore(
        name="keywords",
        score=1.0 - math.exp(-best / _keyword_tuning().scale),
        reason=_names(terms) + where,
        parts={"sum": best},
    )


def _sum(folded: str) -> tuple[float, list[Term]]:
    counts = Counter(hit.term for hit in shipped_lexicon().hits(folded))
    # Not divided by the length of the text: padding must not dilute a term.
    total = sum((1.0 + math.log(times)) * term.weight for term, times in counts.items())
    return total, sorted(counts, key=lambda term: (-term.weight, term.text))


def _names(terms: Iterable[Term]) -> str:
    named = [f"{term.family}: {term.text}" for term in terms]
    more = f" and {len(named) - _NAMED_TERMS} more" if len(named) > _NAMED_TERMS else ""
    return "; ".join(named[:_NAMED_TERMS]) + more


@cache
def _keyword_tuning() -> _KeywordTuning:
    return read_tuning("keywords", _KeywordTuning)
