"""Characters written as escapes among ordinary ones: %41, \\x41, \\u0041, \\101, &#65;, =41."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from urllib.parse import unquote_to_bytes

_MIN_ESCAPES = 3
_MAX_GAP = 24
_MAX_TOKEN = 64
_CODE_UNIT = re.compile(r"\\[uU]\{?([0-9A-Fa-f]{1,8})\}?")
_SPACE = re.compile(r"\s")


@dataclass(frozen=True, slots=True)
class Escape:
    """One way of writing a character; `pattern` fits a run of such escapes, `undo` undoes it.

    Where `is_for_letters`, escapes of signs are ordinary (`&#39;`) and only letters count.
    """

    name: str
    hint: str
    pattern: re.Pattern[str]
    undo: Callable[[str], str]
    is_for_letters: bool = True
    space: str = ""


def unescaped(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield (method, plain text, start, end) for each stretch in which escapes crowd.

    A stretch is on one line, holds three escapes or more, no two of them far apart, and is
    widened to whole words.
    """
    for escape in ESCAPES:
        for start, end in _stretches(text, escape) if escape.hint in text else ():
            written = text[start:end].replace(escape.space or " ", " ")
            yield escape.name, escape.pattern.sub(_undone(escape), written), start, end


def _undone(escape: Escape) -> Callable[[re.Match[str]], str]:
    return lambda match: escape.undo(match[0])


def _stretches(text: str, escape: Escape) -> Iterator[tuple[int, int]]:
    start = end = escapes = 0
    for match in escape.pattern.finditer(text):
        if escapes and not _is_near(text[end : min(match.start(), end + _MAX_TOKEN)]):
            if escapes >= _MIN_ESCAPES:
                yield _widened(text, start, end)
            escapes = 0
        plain = escape.undo(match[0])
        count = sum(map(str.isalnum, plain)) if escape.is_for_letters else len(plain)
        if not escapes:
            start = match.start()
        end = match.end()
        escapes += count
    if escapes >= _MIN_ESCAPES:
        yield _widened(text, start, end)


def _is_near(gap: str) -> bool:
    is_one_line = len(gap) <= _MAX_GAP and "\n" not in gap
    return is_one_line or (len(gap) < _MAX_TOKEN and not _SPACE.search(gap))


def _widened(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span of the whole words, as far as words go."""
    before = text[max(0, start - _MAX_TOKEN) : start]
    after = text[end : end + _MAX_TOKEN]
    space = _SPACE.search(after)
    word = len(before) - 1 - max(before.rfind(gap) for gap in " \n\t")
    return start - word, end + (space.start() if space else len(after))


def _from_bytes(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _percent(run: str) -> str:
    return _from_bytes(unquote_to_bytes(run))


def _hexadecimal(run: str) -> str:
    return _from_bytes(bytes.fromhex(run.replace("\\x", "").replace("=", "")))


def _octal(run: str) -> str:
    return _from_bytes(bytes(int(code, 8) & 0xFF for code in run[1:].split("\\")))


def _code_points(run: str) -> str:
    codes = [int(match[1], 16) for match in _CODE_UNIT.finditer(run)]
    # Beyond the basic plane a character is written as two surrogates, which belong together.
    units = "".join(chr(code) for code in codes if code <= 0x10FFFF)
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


ESCAPES = (
    Escape("percent", "%", re.compile("(?:%[0-9A-Fa-f]{2})+"), _percent, False, "+"),
    Escape("hex", "\\x", re.compile(r"(?:\\x[0-9A-Fa-f]{2})+"), _hexadecimal),
    Escape(
        "unicode",
        "\\",
        re.compile(r"(?:\\u[0-9A-Fa-f]{4}|\\u\{[0-9A-Fa-f]{1,6}\}|\\U[0-9A-Fa-f]{8})+"),
        _code_points,
    ),
    Escape("octal", "\\", re.compile(r"(?:\\[0-3]?[0-7]{2})+"), _octal),
    Escape("html", "&#", re.compile("(?:&#[xX]?[0-9A-Fa-f]{1,6};)+"), unescape),
    Escape("quoted_printable", "=", re.compile("(?:=[0-9A-F]{2}|=\r?\n)+"), _hexadecimal),
)
