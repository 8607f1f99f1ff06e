"""Reading records, and keeping some of each kind."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def read(path: Path) -> Iterator[Any]:
    """Yield the records of a JSONL file, gzipped or not."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def at_most(items: Iterable[T], most: int, key: Callable[[T], Hashable]) -> list[T]:
    """Keep the first `most` items of each key, in their order."""
    seen: Counter[Hashable] = Counter()
    kept = []
    for item in items:
        seen[key(item)] += 1
        if seen[key(item)] <= most:
            kept.append(item)
    return kept
