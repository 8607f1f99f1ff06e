"""A long text in pieces of a size that can be judged, cut where sentences end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from promptguard.errors import InputError

SIZE = 2_000
OVERLAP = 200
_SENTENCE_END = re.compile(r"[.!?][\"'”’)\]]*\s+|[。！？…]+|\n+")
_SPACE = re.compile(r"\s+")


class Window(NamedTuple):
    """One piece and its place: `text` is what lies from `start` to `end`."""

    start: int
    end: int
    text: str


def windows(text: str, size: int = SIZE, overlap: int = OVERLAP) -> Iterator[Window]:
    """Yield pieces of at most `size` characters that cover all of `text`, in order.

    A piece ends after a sentence or a line, else after a word, where one ends in its second half.
    It shares about `overlap` characters with the next, so that a sentence cut in two is whole in
    one of them. Time is linear in the text, for a fixed ratio of size to overlap.
    """
    # A piece may end at half its size; a larger overlap would hardly get on.
    if size < 1 or not 0 <= overlap <= size // 4:
        raise InputError("A window needs a size, and an overlap of at most a quarter of it.")
    start = 0
    while len(text) - start > size:
        end = _cut(text, start + size // 2, start + size)
        yield Window(start, end, text[start:end])
        start = _resume(text, end - overlap, end)
    if start < len(text) or not text:
        yield Window(start, len(text), text[start:])


def _cut(text: str, earliest: int, latest: int) -> int:
    """Return where a sentence ends last between the two, else a word, else `latest`."""
    for boundary in (_SENTENCE_END, _SPACE):
        ends = [match.end() for match in boundary.finditer(text, earliest, latest)]
        if ends:
            return ends[-1]
    return latest


def _resume(text: str, earliest: int, latest: int) -> int:
    """Return where a sentence starts first between the two, else a word, else `earliest`."""
    for boundary in (_SENTENCE_END, _SPACE):
        match = boundary.search(text, earliest, latest)
        if match and match.end() < latest:
            return match.end()
    return earliest
