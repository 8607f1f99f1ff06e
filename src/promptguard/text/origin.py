"""Where a position in a shortened text lay in the text it was made from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Maps positions of a text made by deletions back to the longer text.

    From `starts[i]` on, a position lies `shifts[i]` characters further right in the original.
    """

    starts: tuple[int, ...] = (0,)
    shifts: tuple[int, ...] = (0,)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the original span of the non-empty span `start:end`."""
        return self._at(start), self._at(end - 1) + 1

    def _at(self, position: int) -> int:
        return position + self.shifts[bisect_right(self.starts, position) - 1]

    def after(self, earlier: Origin) -> Origin:
        """Return the map through both steps, `earlier` having been made first."""
        if earlier.starts == (0,) and earlier.shifts == (0,):
            return self
        cuts = set(self.starts)
        for start, shift in zip(self.starts, self.shifts, strict=True):
            cuts.update(cut - shift for cut in earlier.starts if cut - shift > start)
        ordered = tuple(sorted(cuts))
        return Origin(
            starts=ordered, shifts=tuple(earlier._at(self._at(cut)) - cut for cut in ordered)
        )


def delete(text: str, spans: Iterable[tuple[int, int]]) -> tuple[str, Origin]:
    """Return `text` without the ordered, disjoint `spans`, and the way back."""
    pieces: list[str] = []
    starts, shifts = [0], [0]
    position = length = 0
    for start, end in spans:
        pieces.append(text[position:start])
        length += start - position
        position = end
        if starts[-1] == length:
            shifts[-1] = position - length
        else:
            starts.append(length)
            shifts.append(position - length)
    pieces.append(text[position:])
    return "".join(pieces), Origin(starts=tuple(starts), shifts=tuple(shifts))
