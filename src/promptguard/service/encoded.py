"""Strings that are encoded data: what they stand for, and whether they are words after all."""

from __future__ import annotations

import base64
import codecs
import re
import string

_DATA_URL = re.compile(r"data:[\w/+.;=-]*;base64,(?=[A-Za-z0-9+/_\s=-]*\Z)")
# What is taken is not given back: else a long run of blanks would be gone through once for each.
_BASE64 = re.compile(r"[A-Za-z0-9+/_\s-]{200,}+={0,2}\s*+\Z")
# Encoded lines are broken after 64 or 76 characters; shorter ones are words.
_LINE_CHARS = 40
# A sentence without blanks (`Ignore_all_previous`): in data so many words in a row are no chance,
# and windows with so many letters of one case are rare enough to look closer.
_JOINED_WORDS = re.compile(
    r"(?:(?:(?:[A-Z]|(?<![a-z]))[a-z]{2,20}(?![a-z])|(?<![A-Za-z])[A-Z]{2,20}(?![A-Za-z]))"
    r"[\d_+/-]{0,3}){12}"
)
_WINDOW_CHARS = 256
_WORDY_SHARE = 0.55
_CASES = (string.ascii_lowercase.encode(), string.ascii_uppercase.encode())
_PRINTABLE_SHARE = 0.95
# What kind of bytes they are shows at the beginning; the rest may be megabytes.
_HEAD_BYTES = 4096


def is_bytes(text: str) -> bool:
    """Say whether a string is encoded data and not something to read."""
    is_encoded = _DATA_URL.match(text) or _BASE64.match(text)
    return is_encoded is not None and not _has_words(text)


def _has_words(encoded: str) -> bool:
    """Say whether what could be encoded data is, at some place, a sentence instead."""
    if any(len(line) < _LINE_CHARS for line in encoded.split()[:-1]):
        return True
    letters = encoded.encode("ascii", "replace")
    # Windows overlap by half, so that a sentence across an edge is seen whole in one.
    for start in range(0, len(letters), _WINDOW_CHARS // 2):
        piece = letters[start : start + _WINDOW_CHARS]
        fewest = min(len(piece.translate(None, case)) for case in _CASES)
        if fewest <= (1 - _WORDY_SHARE) * len(piece) and _JOINED_WORDS.search(piece.decode()):
            return True
    return False


def decoded_text(text: str) -> str | None:
    """Return the text that encoded data stands for, None where it is not text."""
    payload = "".join(_DATA_URL.sub("", text, count=1).split())
    # Both alphabets of base64 are read, with padding or without, and what stands behind padding.
    parts = payload.translate({45: 43, 95: 47}).split("=")
    # One character by itself stands for no byte; lenient readers leave it out as well.
    whole = (part[: len(part) - (len(part) % 4 == 1)] for part in parts if len(part) > 1)
    raw = b"".join(base64.b64decode(part + "==") for part in whole)
    encoding = _encoding_of(raw[:_HEAD_BYTES])
    return None if encoding is None else raw.decode(encoding, "replace")


def _encoding_of(head: bytes) -> str | None:
    """Return how bytes that begin like this are read as text, None where they are not text."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif head[1::2].count(0) > len(head) // 4:
        encoding = "utf-16-le"
    elif head[::2].count(0) > len(head) // 4:
        encoding = "utf-16-be"
    else:
        # Encodings of one byte per letter are read so too, with a few gaps.
        encoding = "utf-8-sig"
    decoded = head.decode(encoding, "replace")
    readable = sum(char.isprintable() or char.isspace() for char in decoded)
    is_text = readable - decoded.count("\ufffd") >= _PRINTABLE_SHARE * len(decoded)
    return encoding if is_text else None
