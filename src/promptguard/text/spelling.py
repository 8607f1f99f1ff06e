"""Words hidden by how they are spelled: letters set apart, digits for letters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from promptguard.text.origin import Edit
from promptguard.text.vocabulary import is_word, segment

_SPACED = re.compile(
    r"(?<![^\W_])"
    r"(?:[^\W\d_](?:[ ._*|/~-]{1,3}|\s{2,3})(?=[^\W\d_](?![^\W_]))){3,}"
    r"[^\W\d_](?![^\W_])"
)
_WIDE_GAP = re.compile(r"\s{2,}|\s*[/|]\s*|\s+[._*~-]\s+")
_ANY_SPACE = re.compile(r"\s+")
_LETTER = re.compile(r"[^\W\d_]")
_SIGN = re.compile(r"[^\w\s]|_")
_CJK = re.compile(r"[぀-ヿ㐀-鿿가-힣]")
# Possessive, and begun only where a run of such characters begins: linear on any text.
_LEET = re.compile(r"(?<![\w@$!|])[A-Za-z]*+[0134578@$!|][A-Za-z0134578@$!|]*+(?![\w@$])")
_LEET_SIGNS = "0134578@$!|"
_DIGITS = str.maketrans("0134578@$!|", "oieastbasil")
_DIGITS_L = str.maketrans("0134578@$!|", "oleastbasll")
_SHORT_LEET = re.compile(r"(?<!\S)(?:[A-Za-z][0134!]|[1!45][A-Za-z]|4)(?!\S)")
_SHORT = {
    "t0": "to", "d0": "do", "n0": "no", "s0": "so", "g0": "go", "m3": "me", "b3": "be",
    "w3": "we", "1s": "is", "1t": "it", "1f": "if", "1n": "in", "4t": "at", "4n": "an",
    "4s": "as", "4": "a",
}  # fmt: skip
_INSIDE = re.compile(
    r"[a-z][0134578@$!|]+[a-z]|(?<![!|])[013457][a-z]{3,}$|[a-z].*[013457@$].*[013457@$]"
)
_LONGEST_WORD = 32


def unspace(text: str) -> str:
    """Join letters that were set apart, where joined they are words (CJK: four or more)."""
    return _SPACED.sub(_joined, text)


def unspacing(text: str) -> Iterator[Edit]:
    """Yield the edits that `unspace` makes."""
    for match in _SPACED.finditer(text):
        joined = _joined(match)
        if joined != match[0]:
            yield match.start(), match.end(), joined


def unleet(text: str) -> str:
    """Replace digits and signs that stand for letters, where the result is a known word.

    Two-letter words and the lone `4` are touched only where longer words were disguised too.
    """
    if not any(sign in text for sign in _LEET_SIGNS):
        return text
    spelled = _LEET.sub(_spelled, text)
    if spelled == text:
        return text
    return _SHORT_LEET.sub(lambda match: _SHORT.get(match[0].lower(), match[0]), spelled)


def _joined(match: re.Match[str]) -> str:
    run = match[0]
    if len(set(_SIGN.findall(run))) > 1:
        return run
    gap = _ANY_SPACE if _SIGN.search(run) else _WIDE_GAP
    pieces = ["".join(_LETTER.findall(piece)) for piece in gap.split(run)]
    if _CJK.search(run):
        is_hangul_prose = "가" <= run[0] <= "힣" and not _SIGN.search(run) and len(run) < 12
        return run if is_hangul_prose else "".join(pieces)
    if all(is_word(piece) for piece in pieces if len(piece) > 1) and max(map(len, pieces)) > 2:
        return " ".join(pieces)
    return (segment(pieces[0]) if len(pieces) == 1 else None) or run


def _spelled(match: re.Match[str]) -> str:
    token = match[0]
    core = token.rstrip("!|")
    if not 3 <= len(core) <= _LONGEST_WORD or not _INSIDE.search(core):
        return token
    for table in (_DIGITS, _DIGITS_L):
        word = core.translate(table)
        if is_word(word):
            return word + token[len(core) :]
    return token
