"""The text as the patterns read it: one character for each of the original's."""

from __future__ import annotations

_MARKS = {
    **dict.fromkeys("‘’ʼ′`´＇", "'"),
    **dict.fromkeys("“”„«»＂", '"'),
    **dict.fromkeys("‐‑‒–—―", "-"),
    **dict.fromkeys("*_#>~\u00a0\u3000\u200b\ufeff", " "),
}
_TABLE = str.maketrans(
    _MARKS | {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | {"＇": "'"}
)


def fold(text: str) -> str:
    """Return `text` in lower case with plain quotes, dashes and widths, of the same length.

    Marks of emphasis become spaces, so that positions in the result are positions in `text`.
    """
    plain = text.translate(_TABLE)
    lowered = plain.lower()
    if len(lowered) == len(plain):
        return lowered
    return "".join(low if len(low := char.lower()) == 1 else char for char in plain)
