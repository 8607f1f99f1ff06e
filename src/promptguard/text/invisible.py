"""What characters that nobody sees spell out: tags, variation selectors, zero-width bits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from promptguard.text.origin import DecodedView

Run = tuple[str, int, int]
"""Invisible characters that follow each other, and their place."""

_MIN_BYTES = 4
_MIN_BITS = 32
_SEPARATORS = dict.fromkeys((0x200D, 0xFEFF, 0xFE0E, 0xFE0F))
# The flags of England, Scotland and Wales are a black flag with tags: gbeng, gbsct, gbwls.
_FLAG_TAGS = re.compile(
    "(?<=\U0001f3f4)\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067"
    "|\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f"
)


def without_flag(text: str, run: str, start: int, end: int) -> Run:
    """Return a run without the tags that make a flag of the emoji before it."""
    flag = _FLAG_TAGS.match(text, start)
    return (run[flag.end() - start :], flag.end(), end) if flag else (run, start, end)


def spelled(runs: Sequence[Run]) -> Iterator[DecodedView]:
    """Yield what the runs of one text spell when taken together, in each way of writing."""
    for method, sign, undo in _METHODS:
        used = [run for run in runs if sign.search(run[0])]
        plain = undo("".join(char for run in used for char in sign.findall(run[0])))
        if plain:
            yield DecodedView(method=method, text=plain, start=used[0][1], end=used[-1][2])


def _tags(signs: str) -> str | None:
    return "".join(chr(ord(char) - 0xE0000) for char in signs)


def _selectors(signs: str) -> str | None:
    """Read each variation selector as the byte of its number.

    Emoji and names in Han characters bring selectors whose bytes no text has; those are ordinary
    and must not hide what the others spell.
    """
    codes = map(ord, signs)
    numbers = (code - 0xFE00 if code < 0xE0100 else code - 0xE0100 + 16 for code in codes)
    raw = bytes(number for number in numbers if number >= 32 or number in b"\t\n\r")
    return _if_printable(raw.decode("utf-8", "ignore")) if len(raw) >= _MIN_BYTES else None


def _bits(signs: str) -> str | None:
    """Read two kinds of zero-width characters as the bits of bytes, whichever kind is one."""
    # Some writers part the letters by a third sign, without which two kinds are left.
    for digits in (signs, signs.translate(_SEPARATORS)):
        kinds = sorted(set(digits))
        if len(kinds) != 2 or len(digits) < _MIN_BITS:
            continue
        for zero, one in (kinds, kinds[::-1]):
            bits = digits.replace(zero, "0").replace(one, "1")
            raw = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))
            plain = _if_printable(raw.decode("utf-8", "replace"))
            if plain:
                return plain
    return None


def _if_printable(text: str) -> str | None:
    is_plain = "\ufffd" not in text and text.replace("\n", "").isprintable()
    return text if is_plain else None


_METHODS = (
    ("tags", re.compile("[\U000e0020-\U000e007e]"), _tags),
    ("variation_selectors", re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]"), _selectors),
    ("zero_width_bits", re.compile("[\u180e\u200b-\u200f\u2060-\u2064\ufeff]"), _bits),
)
