"""A long text in segments that are each read at once, and which of them are worth reading."""

from __future__ import annotations

from collections.abc import Sequence

from promptguard.patterns.wordlist import shipped_concepts
from promptguard.text.normalize import fold
from promptguard.text.windows import windows

# One reading covers this many characters whole; longer texts are cut into such segments.
SEGMENT_CHARS = 6_000
READ_SEGMENTS = 8
# A message in many views costs no more than one in four: decoding must not buy time.
MOST_SEGMENTS = 4 * READ_SEGMENTS


def riskiest_segments(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the segments of a message's views worth reading: all, or the most suspicious.

    A view brings READ_SEGMENTS of them, all views MOST_SEGMENTS at most. Suspicion is how many
    hazards, evasions and protected things a segment names; the first and the last segment of
    every view are always read, so that a short one is never left out. Order is kept.
    """
    pieces: list[str] = []
    ends: set[int] = set()
    for text in texts:
        first = len(pieces)
        pieces += [piece.text for piece in windows(text, size=SEGMENT_CHARS)]
        ends |= {first, len(pieces) - 1}
    limit = min(READ_SEGMENTS * len(texts), MOST_SEGMENTS)
    if len(pieces) <= limit:
        return tuple(pieces)
    lexicon = shipped_concepts()
    weights = [
        sum(not name.startswith("innocent.") for name in lexicon.match(fold(piece)))
        for piece in pieces
    ]
    others = sorted(
        (index for index in range(len(pieces)) if index not in ends),
        key=lambda index: (-weights[index], index),
    )
    chosen = sorted(ends | set(others[: limit - len(ends)]))
    return tuple(pieces[index] for index in chosen)
