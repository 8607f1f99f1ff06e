"""A bounded memory of what was answered lately."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The latest entries; a key names its owner too, so that nobody finds another's."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[K, V] = OrderedDict()

    def remember(self, key: K, value: V) -> None:
        """Remember an entry; the oldest is forgotten."""
        self._entries[key] = value
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def find(self, key: K) -> V | None:
        """Return an entry, None where it is not known here."""
        return self._entries.get(key)
