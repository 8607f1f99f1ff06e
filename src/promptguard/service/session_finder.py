"""Finding the session of a conversation: by its id, by its chain, or by how it begins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from promptguard.conversation import Role
from promptguard.protocols import SessionKey, SessionQuery, SessionStore
from promptguard.service.chat_request import Said
from promptguard.service.history import Comparison, HistoryKind, compare, split_new
from promptguard.service.links import ConversationLinks
from promptguard.service.session_key import (
    DIGEST_BYTES,
    Owner,
    chain_of,
    chain_prefix,
    new_chain_id,
    view_of,
)

# Users of one key may begin alike ("hi"). Only a past nobody else would have written word for
# word is proof enough to hold a changed history against a session.
DISTINCTIVE_CHARS = 120
_MAX_STEPS_BACK = 64
_MAX_CANDIDATES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    session_id: str
    chain: bytes | None = None


class SessionFinder:
    """Finds sessions in memory first, then in the store, where other guards' are too."""

    def __init__(self, store: SessionStore, links: ConversationLinks) -> None:
        self._store = store
        self._links = links

    @asynccontextmanager
    async def find(
        self, owner: Owner, said: Sequence[Said], session_id: str | None
    ) -> AsyncIterator[SessionKey]:
        """Give the session to judge in; where judging fails, it is found there again."""
        if session_id is not None:
            yield SessionKey(session_id=owner.bound(session_id), tenant=owner.tenant)
            return
        found = await self._by_chain(owner, said)
        try:
            yield SessionKey(session_id=found.session_id, tenant=owner.tenant)
        except BaseException:
            if found.chain is not None:
                self._links.stand(found.chain, found.session_id)
            raise

    async def _by_chain(self, owner: Owner, said: Sequence[Said]) -> _Found:
        view = view_of(said)
        failed = self._links.take_failed(chain_of(owner, view))
        if failed is not None:
            return _Found(session_id=failed)
        for chain in _prefixes(owner, view, len(said) - 1):
            standing = self._links.take(chain) or self._links.take_failed(chain)
            if standing is not None:
                return _Found(session_id=standing, chain=chain)
        history, _ = split_new(said)
        if not history:
            return _Found(session_id=new_chain_id(owner, said))
        known = self._links.passed(_prefixes(owner, view, len(history), _distinctive(history)))
        if known is not None:
            return _Found(session_id=known)
        stored = await self._in_store(owner, said)
        return _Found(session_id=stored or new_chain_id(owner, said))

    async def _in_store(self, owner: Owner, said: Sequence[Said]) -> str | None:
        """Return a stored session that begins alike and fits, else one that was rewritten."""
        contains = owner.bound(chain_prefix(owner, said))
        query = SessionQuery(tenant=owner.tenant, contains=contains, limit=_MAX_CANDIDATES)
        rewritten = None
        for state in await self._store.sessions(query):
            key = SessionKey(session_id=state.session_id, tenant=state.tenant)
            found = compare(said, await self._store.transcript(key), learns_replies=True)
            if found.kind in (HistoryKind.INTACT, HistoryKind.RETRIED):
                return state.session_id
            if rewritten is None and _is_proof(said, found):
                rewritten = state.session_id
        return rewritten


def _prefixes(owner: Owner, view: bytes, longest: int, shortest: int = 1) -> Iterator[bytes]:
    """Yield the chains of the beginnings of a conversation, the longest first."""
    for length in range(longest, max(shortest - 1, longest - _MAX_STEPS_BACK), -1):
        yield chain_of(owner, view[: length * DIGEST_BYTES])


def _distinctive(history: Sequence[Said]) -> int:
    """Return how many messages it takes until the past is nobody else's."""
    written = 0
    for count, item in enumerate(history, start=1):
        written += len(item.text) if item.role is Role.USER else 0
        if written >= DISTINCTIVE_CHARS:
            return count
    return len(history) + 1


def _is_proof(said: Sequence[Said], found: Comparison) -> bool:
    history, _ = split_new(said)
    seen = [item for item in history if item.role is Role.USER and item not in found.unseen]
    return sum(len(item.text) for item in seen) >= DISTINCTIVE_CHARS
