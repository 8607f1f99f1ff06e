"""English for the words of a text in another language, one by one.

The readers know English best, so they also read a gloss of a text in another language: each word
replaced by the English word that sentence pairs or a writer tied it to, in the order of the
original. It is no translation, and its errors differ from those made on the original.

The table holds no words, only a hash of each with the index of its English word, so that 22
languages take little memory.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

PUNCTUATION = "".join(map(chr, range(33, 48))) + ":;<=>?@[\\]^_`{|}~“”‘’«»„…–—،؛؟।॥·¿¡"
# The language is told from the first words; a text that changes it later is read in the first.
SHOWN_WORDS, MOST_WORDS = 60, 600
LONGEST_WORD = 80
LEAST_KNOWN = 0.4  # of the words, or the language is another one
LEAST_WORDS = 3
LEAST_STEM = 3
# A Korean letter is a syllable, and most nouns have two.
LEAST_SYLLABLES, _SYLLABLE = 2, re.compile("[\uac00-\ud7a3]")
# A text in which English knows so many words is not looked up in twenty other tables.
PLAINLY_ENGLISH = 0.85
# Languages written without spaces, and the most characters of one of their units.
UNSPACED = {"ja": 10, "th": 16, "zh": 6}
MOST_UNSPACED = 1200  # characters
UNKNOWN_COST = 2  # of a character in no unit, in units
LEAST_UNSPACED = 0.25  # of the characters that are not blank
LEAST_KANA = 0.08  # of a Japanese text in Han characters and kana
# Beginnings and endings that may be cut off a word that is not known, the fewest letters first. Cut
# elsewhere than in languages with prefixes, a beginning leaves another word.
PREFIXED = {"ar", "id", "jv", "sw"}
_CUTS = ((0, 1), (1, 0), (0, 2), (2, 0), (1, 1), (0, 3), (3, 0), (2, 1))
_ENDINGS = tuple((front, back) for front, back in _CUTS if not front)
_THAI, _KANA, _HAN = r"\u0e00-\u0e7f", r"\u3040-\u30ff", r"\u3005\u3400-\u9fff"
_RUN = re.compile(f"[{_THAI}{_KANA}{_HAN}]+|[^\\s{_THAI}{_KANA}{_HAN}]+")
_SCRIPTS = {name: re.compile(f"[{chars}]") for name, chars in
            (("thai", _THAI), ("kana", _KANA), ("han", _HAN))}  # fmt: skip


def words_of(text: str) -> list[str]:
    """Return the words of a text in small letters, without the marks around them."""
    return list(filter(None, (word.strip(PUNCTUATION) for word in text.lower().split())))


def spelled(word: str) -> str:
    """Return a word in the one spelling of its letters that the tables know."""
    # A long pile of marks takes quadratic time to sort, and is no word.
    return unicodedata.normalize("NFKC", word) if len(word) <= LONGEST_WORD else word


def hash_of(word: str) -> int:
    """Return 32 bits that tell a word from others, the same ones on every machine."""
    return zlib.crc32(word.encode("utf-8", "replace"))


def unspaced_language(text: str) -> str | None:
    """Return the language of a text that is written without spaces, by its characters."""
    shown = text[:MOST_UNSPACED]
    thai, kana, han = (len(_SCRIPTS[name].findall(shown)) for name in ("thai", "kana", "han"))
    if thai + kana + han < LEAST_UNSPACED * len("".join(shown.split())) or not shown.strip():
        return None
    if thai >= kana + han:
        return "th"
    return "ja" if kana >= LEAST_KANA * (kana + han) else "zh"


def runs_of(text: str) -> list[tuple[str, bool]]:
    """Return the parts of a text in small letters, each with whether it is written unspaced."""
    found = _RUN.findall(text.lower())
    return [(run, any(script.match(run) for script in _SCRIPTS.values())) for run in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """One language: sorted hashes, and for each the index of its English word."""

    hashes: npt.NDArray[np.uint32]
    english: npt.NDArray[np.uint16]

    def find(self, hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """Return the index of each word's English one, -1 where the word is not known."""
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[at] == hashes, self.english[at].astype(np.int64), -1)


class Glossary:
    """English words for those of several languages. Safe to share between threads."""

    def __init__(self, english: Sequence[str], languages: Mapping[str, Words]) -> None:
        self.english = tuple(english)
        self.languages = dict(languages)
        known = np.array([hash_of(word) for word in self.english], dtype=np.uint32)
        self._english = Words(hashes=np.sort(known), english=np.zeros(len(known), dtype=np.uint16))

    def gloss(self, text: str) -> str | None:
        """Return the gloss; None for English, for languages that are not in the table, and for
        texts beyond the bounds.
        """
        # Half a gloss would speak for a text whose other half is the attack.
        unspaced = unspaced_language(text)
        if unspaced is not None:
            whole = len(text) <= MOST_UNSPACED
            return self._gloss_unspaced(text, unspaced) if whole else None
        words = words_of(text)
        if not LEAST_WORDS <= len(words) <= MOST_WORDS:
            return None
        if not text.isascii():
            words = [spelled(word) for word in words]
        language = self.language_of(words[:SHOWN_WORDS])
        if language is None:
            return None
        table = self.languages[language]
        pairs = [f"{word} {after}" for word, after in pairwise(words)]
        both = table.find(np.array([hash_of(pair) for pair in pairs], dtype=np.uint32))
        found: list[str] = []
        at = 0
        while at < len(words):
            is_pair = at < len(pairs) and both[at] >= 0
            if is_pair:
                found.append(self.english[int(both[at])])
            else:
                cuts = _CUTS if language in PREFIXED else _ENDINGS
                found.append(self._english_for(words[at], table, cuts))
            at += 2 if is_pair else 1
        return " ".join(found)

    def language_of(self, words: Sequence[str]) -> str | None:
        """Return the language that knows most of the words, if it knows more than English does."""
        hashes = np.array([hash_of(word) for word in words], dtype=np.uint32)
        english = _share(self._english, hashes)
        if english >= PLAINLY_ENGLISH:
            return None
        spaced = {code: table for code, table in self.languages.items() if code not in UNSPACED}
        shares = {code: _share(table, hashes) for code, table in spaced.items()}
        best = max(shares, key=lambda code: shares[code], default=None)
        if best is None or shares[best] < LEAST_KNOWN:
            return None
        # The tables hold foreign names and loan words too, so English must fall clearly behind.
        return best if shares[best] > english + 0.1 else None

    def _gloss_unspaced(self, text: str, language: str) -> str | None:
        table = self.languages.get(language)
        if table is None:
            return None
        found: list[str] = []
        known = written = 0
        for run, is_unspaced in runs_of(unicodedata.normalize("NFKC", text)):
            if is_unspaced:
                units, covered = self._units(run, table, UNSPACED[language])
                found += units
                known, written = known + covered, written + len(run)
            else:
                found += words_of(run)
        return " ".join(found) if found and known >= LEAST_KNOWN * written else None

    def _units(self, run: str, table: Words, longest: int) -> tuple[list[str], int]:
        """Return the English of a run cut into the fewest units, and how much of it is known."""
        sizes = range(min(longest, len(run)), 0, -1)
        # All places of one size are looked up at once.
        found = {
            size: table.find(
                np.array(
                    [hash_of(run[at : at + size]) for at in range(len(run) - size + 1)],
                    dtype=np.uint32,
                )
            ).tolist()
            for size in sizes
        }
        # The longest unit first would often begin a word with the end of the one before it.
        costs, chosen = [0] * (len(run) + 1), [0] * len(run)
        for at in range(len(run) - 1, -1, -1):
            fits = (n for n in sizes if at + n <= len(run) and found[n][at] >= 0)
            known = [(costs[at + size] + 1, -size) for size in fits]
            unknown = (costs[at + 1] + UNKNOWN_COST, 0)
            costs[at], size = min([*known, unknown])
            chosen[at] = -size
        units, covered, at = [], 0, 0
        while at < len(run):
            size = chosen[at]
            if size:
                units.append(self.english[found[size][at]])
            covered += size
            at += size or 1
        return units, covered

    def _english_for(self, word: str, table: Words, cuts: Iterable[tuple[int, int]]) -> str:
        """Return the English of a word, or of its stem; an unknown word as it is."""
        forms = [word, *_stems(word, cuts)]
        found = table.find(np.array([hash_of(form) for form in forms], dtype=np.uint32))
        known = found[found >= 0]
        return self.english[int(known[0])] if len(known) else word


def _stems(word: str, cuts: Iterable[tuple[int, int]]) -> Iterable[str]:
    least = LEAST_SYLLABLES if _SYLLABLE.match(word) else LEAST_STEM
    for front, back in cuts:
        stem = word[front : len(word) - back]
        if len(stem) >= least and len(stem) >= len(word) // 2:
            yield stem


def _share(table: Words, hashes: npt.NDArray[np.uint32]) -> float:
    return float((table.find(hashes) >= 0).mean())


def load_glossary(path: Path) -> Glossary:
    """Read a table; raises what numpy raises where the file is broken."""
    # A pickle in a model file could run code.
    with np.load(path, allow_pickle=False) as held:
        arrays = {name: held[name] for name in held.files}
    english = bytes(arrays.pop("english")).decode("utf-8").split("\n")
    languages = {}
    for code in sorted({name.split(".")[0] for name in arrays}):
        # Stored as differences, which pack better.
        hashes = np.cumsum(arrays[f"{code}.steps"], dtype=np.uint32)
        words = Words(hashes=hashes, english=arrays[f"{code}.english"])
        if not len(hashes) or len(hashes) != len(words.english):
            raise ValueError("not a glossary")
        if int(words.english.max()) >= len(english):
            raise ValueError("not a glossary")
        languages[code] = words
    return Glossary(english, languages)
