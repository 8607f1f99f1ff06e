"""Small numbers in digits or in Chinese numerals."""

from __future__ import annotations

_DIGITS = {char: at for at, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_UNITS = {"十": 10, "百": 100}
_MOST_CHARS = 6


def number_in(text: str) -> int | None:
    """Return the number that a text is, or None where it is none or a very long one."""
    plain = text.strip()
    if not plain or len(plain) > _MOST_CHARS:
        return None
    if plain.isascii():
        return int(plain) if plain.isdigit() else None
    if all(char in _DIGITS for char in plain):
        return int("".join(str(_DIGITS[char]) for char in plain))
    return _spelled(plain)


def _spelled(text: str) -> int | None:
    """Return a number with tens and hundreds in it: each takes the digit before it, or one."""
    total, digit = 0, 0
    for char in text:
        if char in _UNITS:
            total += max(digit, 1) * _UNITS[char]
            digit = 0
        elif char in _DIGITS or (char.isascii() and char.isdigit()):
            digit = digit * 10 + (_DIGITS[char] if char in _DIGITS else int(char))
        else:
            return None
    return total + digit
