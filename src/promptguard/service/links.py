"""Which session a conversation without an id goes on in, as far as this process remembers.

Forgetting is safe: the store is asked instead, and failing that the conversation is read anew.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from promptguard.protocols import SessionKey

MAX_LINKS = 20_000
MAX_VIEW_BYTES = 4096
MAX_ALIKE = 64
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenView:
    """The conversation as the client last showed it, when the session had `message_count`."""

    view: bytes
    message_count: int


class ConversationLinks:
    """Bounded memory of chains and views; the least recently used are forgotten.

    Two conversations may be word for word the same so far. Each then has its own session at the
    same chain, and it does not matter which of them goes on in which.
    """

    def __init__(self, limit: int = MAX_LINKS) -> None:
        self._limit = limit
        self._standing: OrderedDict[bytes, deque[str]] = OrderedDict()
        self._passed: OrderedDict[bytes, str] = OrderedDict()
        self._failed: OrderedDict[bytes, str] = OrderedDict()
        self._views: OrderedDict[SessionKey, SeenView] = OrderedDict()

    def take(self, chain: bytes) -> str | None:
        """Return a session that stands exactly at `chain`, which then no other will get."""
        sessions = self._standing.get(chain)
        if not sessions:
            return None
        session_id = sessions.popleft()
        if not sessions:
            del self._standing[chain]
        return session_id

    def passed(self, chains: Iterator[bytes]) -> str | None:
        """Return the last session that went through the first of `chains` that is known."""
        return next((self._passed[chain] for chain in chains if chain in self._passed), None)

    def stand(self, chain: bytes, session_id: str) -> None:
        """Note that a session has come to `chain`."""
        sessions = self._standing.setdefault(chain, deque(maxlen=MAX_ALIKE))
        if session_id not in sessions:
            sessions.append(session_id)
        self._passed[chain] = session_id
        _trim(self._standing, chain, self._limit)
        _trim(self._passed, chain, self._limit)

    def take_failed(self, chain: bytes) -> str | None:
        """Return the session whose last turn, ending at `chain`, got no answer."""
        return self._failed.pop(chain, None)

    def fail(self, chain: bytes, session_id: str) -> None:
        """Note that the turn ending at `chain` got no answer and may be asked again."""
        self._failed[chain] = session_id
        _trim(self._failed, chain, self._limit)

    def view(self, key: SessionKey) -> SeenView | None:
        """Return what the client last showed of a session."""
        return self._views.get(key)

    def show(self, key: SessionKey, seen: SeenView) -> None:
        """Note what the client has now shown of a session."""
        if len(seen.view) > MAX_VIEW_BYTES:
            self._views.pop(key, None)
            return
        self._views[key] = seen
        _trim(self._views, key, self._limit)

    def forget(self, key: SessionKey) -> None:
        """Drop what is known of a deleted session."""
        self._views.pop(key, None)


def _trim(links: OrderedDict[_Key, _Value], used: _Key, limit: int) -> None:
    links.move_to_end(used)
    if len(links) > limit:
        links.popitem(last=False)
