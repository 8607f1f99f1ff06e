"""Which parts of a very long text the readers see: all of it up to a budget, then by suspicion."""

from __future__ import annotations

from promptguard.patterns.wordlist import shipped_concepts
from promptguard.text.normalize import fold
from promptguard.text.windows import windows

# One reading covers this many characters whole; longer texts are cut into such segments.
SEGMENT_CHARS = 6_000
READ_SEGMENTS = 8


def riskiest_segments(text: str, limit: int = READ_SEGMENTS) -> tuple[str, ...]:
    """Return the segments of `text` worth reading: all of them, or the `limit` most suspicious.

    Suspicion is how many hazards, evasions and protected things a segment names; the first and
    the last segment are always read. Order is kept.
    """
    if len(text) <= SEGMENT_CHARS:
        return (text,)
    pieces = [piece.text for piece in windows(text, size=SEGMENT_CHARS)]
    if len(pieces) <= limit:
        return tuple(pieces)
    lexicon = shipped_concepts()
    weights = [
        sum(not name.startswith("innocent.") for name in lexicon.match(fold(piece)))
        for piece in pieces
    ]
    ends = {0, len(pieces) - 1}
    others = sorted(
        (index for index in range(len(pieces)) if index not in ends),
        key=lambda index: (-weights[index], index),
    )
    chosen = sorted(ends | set(others[: limit - len(ends)]))
    return tuple(pieces[index] for index in chosen)
