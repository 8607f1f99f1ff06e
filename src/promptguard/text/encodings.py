"""Ways of writing text as other characters, each undone by one function over one match."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape
from urllib.parse import unquote


@dataclass(frozen=True, slots=True)
class Encoding:
    """What an encoding looks like (`pattern`), and how it is undone; None where it cannot be.

    `hint` holds characters one of which must occur, so that ordinary text is passed over fast.
    """

    name: str
    hint: str
    pattern: re.Pattern[str]
    undo: Callable[[str], str | None]


def _from_bytes(raw: bytes) -> str | None:
    if len(raw) > 8 and not any(raw[1:32:2]):
        return _strict(raw, "utf-16-le")
    return _strict(raw, "utf-8")


def _strict(raw: bytes, charset: str) -> str | None:
    try:
        return raw.decode(charset)
    except UnicodeDecodeError:
        return None


def _base64(found: str) -> str | None:
    compact = "".join(found.split()).rstrip("=").replace("-", "+").replace("_", "/")
    if len(compact) % 4 == 1:
        compact = compact[:-1]
    try:
        return _from_bytes(base64.b64decode(compact + "=" * (-len(compact) % 4)))
    except binascii.Error:
        return None


def _hex(found: str) -> str | None:
    digits = re.sub(r"0x|\\x|[\s,:]", "", found)
    return _from_bytes(bytes.fromhex(digits[: len(digits) // 2 * 2]))


def _binary(found: str) -> str | None:
    digits = "".join(found.split())
    if len(digits) % 8:
        return None
    return _from_bytes(bytes(int(digits[at : at + 8], 2) for at in range(0, len(digits), 8)))


def _decimal(found: str) -> str | None:
    codes = [int(number) for number in re.findall(r"\d+", found)]
    if not all(32 <= code < 127 or code == 10 for code in codes):
        return None
    return "".join(map(chr, codes))


def _percent(found: str) -> str | None:
    if found.count("%") < 2:
        return None
    return unquote(found.replace("+", " "), errors="replace")


def _unicode(found: str) -> str | None:
    return re.sub(r"\\u\{?([0-9A-Fa-f]{4,5})\}?", lambda code: chr(int(code[1], 16)), found)


_MORSE = {
    ".-": "a", "-...": "b", "-.-.": "c", "-..": "d", ".": "e", "..-.": "f", "--.": "g",
    "....": "h", "..": "i", ".---": "j", "-.-": "k", ".-..": "l", "--": "m", "-.": "n",
    "---": "o", ".--.": "p", "--.-": "q", ".-.": "r", "...": "s", "-": "t", "..-": "u",
    "...-": "v", ".--": "w", "-..-": "x", "-.--": "y", "--..": "z", "-----": "0",
    ".----": "1", "..---": "2", "...--": "3", "....-": "4", ".....": "5", "-....": "6",
    "--...": "7", "---..": "8", "----.": "9",
}  # fmt: skip
_MORSE_SIGNS = str.maketrans({"·": ".", "•": ".", "−": "-", "–": "-", "—": "-", "_": "-", "|": "/"})


def _morse(found: str) -> str | None:
    words = re.split(r"\s*/\s*|\s{2,}", found.translate(_MORSE_SIGNS).strip(" /"))
    letters = [[_MORSE.get(code) for code in word.split()] for word in words]
    if any(letter is None for word in letters for letter in word):
        return None
    return " ".join("".join(filter(None, word)) for word in letters)


ENCODINGS: tuple[Encoding, ...] = (
    Encoding("binary", "01", re.compile(r"(?<!\w)[01]{8}(?:\s?[01]{8}){3,}(?!\w)"), _binary),
    Encoding(
        "hex",
        "234567",
        re.compile(
            r"(?<![0-9A-Za-z])(?:0x|\\x)?[0-9A-Fa-f]{2}(?:[\s,:]{0,2}(?:0x|\\x)?[0-9A-Fa-f]{2}){5,}"
        ),
        _hex,
    ),
    Encoding(
        "decimal", "019", re.compile(r"(?<![\d.])\d{2,3}(?:[ ,;]{1,2}\d{2,3}){7,}(?!\d)"), _decimal
    ),
    Encoding("percent", "%", re.compile(r"(?<!\S)\S*%[0-9A-Fa-f]{2}\S*"), _percent),
    Encoding("unicode", "\\", re.compile(r"(?:\\u\{?[0-9A-Fa-f]{4,5}\}?[ ]?){3,}"), _unicode),
    Encoding("html", "&", re.compile(r"(?:&#[xX]?[0-9A-Fa-f]{2,6};\s{0,2}){3,}"), unescape),
    Encoding(
        "morse",
        ".-·•−–—_",
        re.compile(r"(?<![\w.-])[.·•−–—_-]{1,5}(?:[ ]{1,3}(?:[/|][ ]{0,2})?[.·•−–—_-]{1,5}){3,}"),
        _morse,
    ),
    Encoding(
        "base64",
        "",
        re.compile(r"[A-Za-z0-9+/_-]{12,}(?:\r?\n[A-Za-z0-9+/_-]{12,})*={0,2}"),
        _base64,
    ),
)
"""Tried in this order: what fits a narrower alphabet first."""
