"""How a text looks once characters that hide or dress it up are undone."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from promptguard.text.confusables import STYLED, unmix
from promptguard.text.origin import Origin, delete
from promptguard.text.spelling import unleet, unspace

_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f\U000e0100-\U000e01ef]+"
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MARKS = re.compile(
    "([\u0300-\u036f\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]{2})[\u0300-\u036f\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]+"
)
_FANCY = re.compile(
    "[\u1d00-\u1d25\u2460-\u24ff\U0001d400-\U0001d7ff\U0001f110-\U0001f189\U0001f1e6-\U0001f1ff]"
)
_SPACES = re.compile(r"\s+")
_OVERRIDES = "\u202d\u202e"
_SOFT = "\u00ad\ufeff"
_BLACK_FLAG = "\U0001f3f4"


@dataclass(frozen=True, slots=True)
class Stripped:
    """A text without characters nobody sees, the way back, and what was taken out."""

    text: str
    origin: Origin
    disguises: tuple[str, ...] = ()
    tags: str = ""
    tag_span: tuple[int, int] = (0, 0)


def strip_hidden(text: str) -> Stripped:
    """Remove format, tag and control characters; a lone surrogate becomes U+FFFD.

    A removal is named as a disguise only where the character had no business: joiners within
    emoji or between letters of scripts that use them are ordinary.
    """
    if text.isascii() and text.isprintable():
        return Stripped(text, Origin())
    seen = text if text.isascii() else _SURROGATE.sub("\ufffd", text)
    names: list[str] = []
    spans: list[tuple[int, int]] = []
    tags: list[tuple[str, int, int]] = []
    for match in () if text.isascii() else _HIDDEN.finditer(seen):
        spans.append(match.span())
        hidden = _tagged(match[0]) if seen[match.start() - 1 : match.start()] != _BLACK_FLAG else ""
        if hidden:
            tags.append((hidden, *match.span()))
        if hidden or _is_out_of_place(seen, match.start(), match.end()):
            names.append("zero_width")
    for match in _CONTROL.finditer(seen):
        spans.append(match.span())
        names.append("control")
    if not spans:
        return Stripped(seen, Origin())
    stripped, origin = delete(seen, sorted(spans))
    hidden = "".join(run for run, _, _ in tags)
    span = (tags[0][1], tags[-1][2]) if tags else (0, 0)
    return Stripped(stripped, origin, tuple(dict.fromkeys(names)), hidden, span)


def dress_down(text: str) -> tuple[str, tuple[str, ...]]:
    """Return `text` in ordinary letters (readable, case kept) and the names of what was undone."""
    names: list[str] = []
    if not text.isascii():
        text = _plain_letters(text, names)
    joined = unspace(text)
    if joined != text:
        names.append("spaced")
    spelled = unleet(joined)
    if spelled != joined:
        names.append("leet")
    return spelled, tuple(names)


def fold(text: str) -> str:
    """Return the matching form of a plain text: casefolded, spaces squeezed."""
    return _SPACES.sub(" ", text.casefold()).strip()


def _plain_letters(text: str, names: list[str]) -> str:
    if _FANCY.search(text):
        restyled = unicodedata.normalize("NFKC", text.translate(STYLED))
        if sum(map(str.isalpha, restyled)) > sum(map(str.isalpha, text)) or any(
            "\U0001d400" <= char <= "\U0001d7ff" for char in text
        ):
            names.append("styled")
        text = restyled
    else:
        text = unicodedata.normalize("NFKC", text)
    calm = _MARKS.sub(r"\1", text)
    if calm != text:
        names.append("zalgo")
        calm = "".join(char for char in calm if not "\u0300" <= char <= "\u036f")
    mapped = unmix(calm)
    if mapped != calm:
        names.append("homoglyph")
    return mapped


def _tagged(run: str) -> str:
    return "".join(chr(ord(char) - 0xE0000) for char in run if "\U000e0020" <= char <= "\U000e007e")


def _is_out_of_place(text: str, start: int, end: int) -> bool:
    run = text[start:end]
    if any(char in _OVERRIDES for char in run):
        return True
    if all(char in _SOFT or "\ufe00" <= char <= "\ufe0f" for char in run):
        return False
    return _joins_nothing(text[start - 1 : start]) and _joins_nothing(text[end : end + 1])


def _joins_nothing(char: str) -> bool:
    """Whether `char` is a letter of a script in which invisible joiners have no use."""
    return char.isalpha() and not "\u0590" <= char <= "\u109f" and not "\u1780" <= char <= "\u18af"
