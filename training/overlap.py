"""Which training texts nearly repeat a test text: five-character shingles, Jaccard at least 0.6."""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable

SHINGLE = 5
NEAR = 0.6
SKETCH = 12
MAX_CHARS = 1200


def shingles(text: str) -> frozenset[int]:
    """Return the hashes of a text's shingles."""
    plain = re.sub(r"\W+", " ", text.lower())[:MAX_CHARS]
    count = max(1, len(plain) - SHINGLE + 1)
    # Stable from run to run, which the built-in hash of a string is not.
    return frozenset(zlib.crc32(plain[i : i + SHINGLE].encode()) for i in range(count))


class Overlap:
    """Finds near-repeats of a fixed set of texts through their smallest shingle hashes."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.sets = [shingles(text) for text in texts]
        self.index: dict[int, list[int]] = defaultdict(list)
        for number, found in enumerate(self.sets):
            for shingle in sorted(found)[:SKETCH]:
                self.index[shingle].append(number)

    def repeats(self, text: str) -> bool:
        """Say whether `text` nearly repeats one of the set."""
        own = shingles(text)
        votes: Counter[int] = Counter()
        for shingle in sorted(own)[:SKETCH]:
            votes.update(self.index.get(shingle, ()))
        return any(
            len(own & self.sets[number]) >= NEAR * len(own | self.sets[number])
            for number, count in votes.most_common(20)
            if count >= 2
        )
