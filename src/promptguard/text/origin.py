"""Where a span of an edited text lay in the text it was made from."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from promptguard.errors import InputError

Edit = tuple[int, int, str]
"""Start and end of a piece of the source, and what stands in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedView:
    """A text found inside the text by undoing one disguise."""

    method: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Maps spans of an edited text back to its source; empty where nothing was edited.

    Segment i begins at `starts[i]` in the edited text and at `sources[i]` in the source; the last
    entry of both is the length. A segment as long as its source was copied character by
    character; any other stands for its source as a whole.
    """

    starts: Sequence[int] = ()
    sources: Sequence[int] = ()

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the source of the non-empty span `start:end`."""
        if not self.starts:
            return start, end
        first = bisect_right(self.starts, start) - 1
        last = bisect_right(self.starts, end - 1) - 1
        begin, finish = self.sources[first], self.sources[last + 1]
        if self._is_copied(first):
            begin += start - self.starts[first]
        if self._is_copied(last):
            finish = self.sources[last] + end - self.starts[last]
        return begin, finish

    def _is_copied(self, segment: int) -> bool:
        length = self.starts[segment + 1] - self.starts[segment]
        return self.sources[segment + 1] - self.sources[segment] == length


def edit(text: str, edits: Iterable[Edit]) -> tuple[str, Origin]:
    """Return `text` with the ordered, disjoint `edits` made, and the way back."""
    pieces: list[str] = []
    # A long text may have hundreds of thousands of edits; machine integers keep them small.
    starts, sources = array("q"), array("q")
    position = length = 0
    for start, end, replacement in edits:
        starts.extend((length, length + start - position))
        sources.extend((position, start))
        pieces += (text[position:start], replacement)
        length += start - position + len(replacement)
        position = end
    if not starts:
        return text, Origin()
    pieces.append(text[position:])
    starts.extend((length, length + len(text) - position))
    sources.extend((position, len(text)))
    return "".join(pieces), Origin(starts, sources)


def bounded(text: str, max_chars: int) -> tuple[str, Origin]:
    """Return as much of `text` as is read, its beginning and its end, and the way back."""
    if max_chars < 2:
        raise InputError("max_chars must be at least 2.")
    if len(text) <= max_chars:
        return text, Origin()
    half = max_chars // 2
    return edit(text, [(max_chars - half, len(text) - half, "")])


def through(origins: Iterable[Origin], start: int, end: int) -> tuple[int, int]:
    """Return the source of a non-empty span that several edits led to, the last one first."""
    for origin in origins:
        start, end = origin.span(start, end)
    return start, end
