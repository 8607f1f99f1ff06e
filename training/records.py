"""Reading records, keeping some of each kind, and examples that are made of texts."""

from __future__ import annotations

import gzip
import hashlib
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


def is_held_out(text: str, share: float) -> bool:
    """Say whether what is made of a text is held out, always the same way."""
    return hashlib.sha256(text.encode()).digest()[0] / 256 < share


def made_example(
    task: str,
    said: list[list[str]],
    label: int,
    *,
    pair: str,
    source: str,
    lang: str,
    categories: tuple[str, str],
    system: str = "",
) -> dict[str, Any]:
    """Return one side of a made pair; `categories` are those of the innocent and of the attack."""
    return {
        "task": task,
        "system": system,
        "said": said,
        "attack": label,
        "session": label,
        "kinds": (1, -1, -1) if label else (0, 0, 0),
        "source": source,
        "lang": lang,
        "pair": pair,
        "authored": True,
        "category": categories[label],
        "id": f"{pair}-{label}",
    }
