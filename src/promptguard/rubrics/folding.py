"""The text as the patterns read it: one character for each of the original's."""

from __future__ import annotations

import re

_MARKS = {
    **dict.fromkeys("‘’ʼ′`´", "'"),
    **dict.fromkeys("“”„«»", '"'),
    **dict.fromkeys("‐‑‒–—―", "-"),
    **dict.fromkeys("*_#>~\u00a0\u3000\u200b\ufeff", " "),
}
_WIDE = {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_ACCENTED = "àáâãäåāăąçćčèéêëēęěìíîïīñńňòóôõöøōőśšùúûüūůűýÿźżž"
_PLAIN = "aaaaaaaaaccceeeeeeeiiiiinnnoooooooossuuuuuuuyyzzz"
_TABLE = str.maketrans(_MARKS | _WIDE)
_LETTERS = str.maketrans(_ACCENTED, _PLAIN)
_SURROGATE = re.compile("[\ud800-\udfff]")


def fold(text: str) -> str:
    """Return `text` in lower case without accents, with plain quotes, dashes and widths.

    It has the same length, and marks of emphasis become spaces, so that positions in the result
    are positions in `text`.
    """
    plain = text.translate(_TABLE)
    lowered = plain.lower()
    if len(lowered) != len(plain):
        # The dotted capital I becomes two characters, which would move all places after it.
        lowered = "".join(low if len(low := char.lower()) == 1 else char for char in plain)
    if lowered.isascii():
        return lowered
    # RE2 reads UTF-8, which has no lone surrogates.
    return _SURROGATE.sub("?", lowered.translate(_LETTERS))
