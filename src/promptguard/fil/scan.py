"""The form of a text that rules are matched against: bare words, sentence by sentence."""

from __future__ import annotations

import re

from promptguard.patterns.forms import letters

END = "\n"
"""Stands between sentences, with a space on either side; patterns never reach across it."""

_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++[\"'”’)\]]*+(?=\s|$)|[。！？…;；]+|\n+")
_NOT_WORD = re.compile(r"[^\w\n]+|_+")
_LATIN = re.compile("[a-zß-ɏ]")
_SCRIPTS = (
    ("latin", _LATIN),
    ("cyrillic", re.compile("[Ѐ-ԯ]")),
    ("han", re.compile("[一-鿿]")),
    ("kana", re.compile("[぀-ヿ]")),
    ("hangul", re.compile("[가-힣]")),
)


def canonical(text: str) -> str:
    """Return ` word word \\n word \\n `: single spaces, a sentence end after every sentence."""
    marked = _SENTENCE_END.sub(END, letters(text))
    spaced = _NOT_WORD.sub(" ", marked)
    return f" {spaced} {END} ".replace(END, f" {END} ").replace("  ", " ").replace("  ", " ")


def sentences(scan: str) -> list[str]:
    """Return the sentences of a canonical text, none empty, each with its end."""
    return [f"{part}{END} " for part in scan.split(END) if part.strip()]


def scripts(scan: str) -> frozenset[str]:
    """Return which scripts occur in a canonical text."""
    if scan.isascii():
        return frozenset(("latin",))
    return frozenset(name for name, letter in _SCRIPTS if letter.search(scan))
