"""Which session a request belongs to, and which of its turns is judged first.

A request may name its session. Where it does not, the conversation is its own name: a keyed hash
over its messages (a chain) leads to the session that stood there last. The index of chains is
kept in memory; the store is searched where it has no entry, so forgetting is safe.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from promptguard.conversation import ComparableMessage, Role
from promptguard.protocols import SessionKey, SessionQuery, SessionStore
from promptguard.queries import plain_id
from promptguard.service.auth import Principal
from promptguard.service.errors import ApiError
from promptguard.service.history import HistoryKind, compare, split_new
from promptguard.state import TranscriptEntry

# As long as the store's: of shorter ones a client could find two messages alike, and put one that
# was never judged in the other's place.
DIGEST_BYTES = 16
# Memory of the index: about a megabyte per thousand chains. Longer views and further alike
# conversations are looked up in the store instead.
MAX_CHAINS = 20_000
MAX_VIEW_BYTES = 4096
MAX_ALIKE = 64
# Users of one key may begin alike ("hi"). Only a past that nobody else would have written word
# for word is proof enough to hold a changed history against a session.
DISTINCTIVE_CHARS = 120
# So many turns of one session may wait for each other.
MAX_WAITING = 256
# Bounds the work for a conversation of thousands of messages that is not known here.
_MAX_STEPS_BACK = 64
# Each candidate costs the reading of a whole transcript.
_MAX_CANDIDATES = 20
_INITIAL = {Role.USER: "u", Role.TOOL: "t", Role.ASSISTANT: "a", Role.SYSTEM: "s"}
_KEY_MARK = re.compile("k-[0-9a-f]{16}:")
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose session it is: the caller's tenant and key, and the end user where the caller says.

    `caller_key` is a key that the caller itself authenticated, such as a LiteLLM proxy's; the
    sessions of such keys are kept apart like those of our own.
    """

    principal: Principal
    end_user: str = ""
    caller_key: str = ""

    @property
    def tenant(self) -> str:
        """The tenant under which sessions are stored."""
        return self.principal.tenant

    def bound(self, session_id: str) -> str:
        """Return the id under which the caller's session is stored; no other key reaches it."""
        digest = hashlib.sha256(self.caller_key.encode("utf-8", "replace")).hexdigest()[:16]
        # An id that begins like a key's mark would lead into that key's sessions.
        mark = "k-" if _KEY_MARK.match(session_id) else ""
        parts = (self.principal.name, f"k-{digest}" if self.caller_key else mark, session_id)
        return ":".join(part for part in parts if part)


def given_session_id(
    places: Sequence[str], headers: Mapping[str, str], body: Mapping[str, object]
) -> str | None:
    """Return the first id in the configured headers and body fields, in a plain form."""
    for place in places:
        kind, _, name = place.partition(":")
        value = headers.get(name.lower()) if kind == "header" else _field(body, name)
        # Clients send numbers as ids; a bool is an int in Python and no id.
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and value.strip():
            return plain_id(value.strip())
    return None


def view_of(messages: Sequence[ComparableMessage]) -> bytes:
    """Return a conversation as one short digest per message with text, comparable by its bytes."""
    return b"".join(
        hashlib.blake2b(
            (_INITIAL[item.role] + item.digest).encode(), digest_size=DIGEST_BYTES
        ).digest()
        for item in messages
        # What is empty is not compared: nothing tells one such message from another.
        if item.content
    )


def chain_of(owner: Owner, view: bytes) -> bytes:
    """Return the name of a conversation up to here, different for every owner."""
    # Parted by NUL, which the names of tenants and keys cannot hold.
    who = "\0".join((owner.tenant, owner.principal.name, owner.caller_key, owner.end_user))
    key = hashlib.sha256(who.encode("utf-8", "replace")).digest()
    return hashlib.blake2b(view, key=key, digest_size=16).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenView:
    """The conversation as the client last showed it, when the session had `message_count`.

    `stripped` are the digests of contents in it that were withheld from the model.
    """

    view: bytes
    message_count: int
    stripped: frozenset[str] = frozenset()


class SessionIndex:
    """Bounded memory of chains and views; the least recently used are forgotten.

    Two conversations may be word for word the same so far. Each then has its own session at the
    same chain, and it does not matter which of them goes on in which.
    """

    def __init__(self, limit: int = MAX_CHAINS) -> None:
        self._limit = limit
        self._current: OrderedDict[bytes, deque[str]] = OrderedDict()
        self._passed: OrderedDict[bytes, str] = OrderedDict()
        self._unanswered: OrderedDict[bytes, str] = OrderedDict()
        self._views: OrderedDict[SessionKey, SeenView] = OrderedDict()

    def remember(self, owner: Owner, key: SessionKey, seen: SeenView, *, is_chained: bool) -> None:
        """Record what the client has now shown of a session.

        `is_chained`: the session is found by its messages, so that they lead to it from now on.
        """
        if is_chained:
            self.record_end(chain_of(owner, seen.view), key.session_id)
        # An outdated view would be no proof, so it goes where the new one is too long.
        if len(seen.view) > MAX_VIEW_BYTES:
            self._views.pop(key, None)
            return
        self._views[key] = seen
        _trim(self._views, key, self._limit)

    def record_end(self, chain: bytes, session_id: str) -> None:
        """Record that a session's conversation now ends at `chain`."""
        sessions = self._current.setdefault(chain, deque(maxlen=MAX_ALIKE))
        if session_id not in sessions:
            sessions.append(session_id)
        self._passed[chain] = session_id
        _trim(self._current, chain, self._limit)
        _trim(self._passed, chain, self._limit)

    def claim(self, chain: bytes) -> str | None:
        """Return a session whose conversation ends at `chain`; no other caller gets it then."""
        sessions = self._current.get(chain)
        if not sessions:
            return None
        session_id = sessions.popleft()
        if not sessions:
            del self._current[chain]
        return session_id

    def passed(self, chains: Iterator[bytes]) -> str | None:
        """Return the last session that went through the first known one of `chains`."""
        return next((self._passed[chain] for chain in chains if chain in self._passed), None)

    def mark_unanswered(self, chain: bytes, session_id: str) -> None:
        """Record that the turn ending at `chain` got no answer and may be sent again."""
        self._unanswered[chain] = session_id
        _trim(self._unanswered, chain, self._limit)

    def claim_unanswered(self, chain: bytes) -> str | None:
        """Return the session whose last turn, ending at `chain`, got no answer."""
        return self._unanswered.pop(chain, None)

    def view(self, key: SessionKey) -> SeenView | None:
        """Return what the client last showed of a session."""
        return self._views.get(key)

    def forget(self, key: SessionKey) -> None:
        """Drop what is known of a deleted session."""
        self._views.pop(key, None)


@dataclass(slots=True)
class _Queue:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class SessionQueues:
    """Lets the turns of one session be judged one after the other, in the order they came.

    Only this process is ordered; others are told apart by the version in the store.
    """

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self._limit = limit
        self._queues: dict[SessionKey, _Queue] = {}

    @asynccontextmanager
    async def turn_of(self, key: SessionKey) -> AsyncIterator[None]:
        """Hold the session for a block; raises a 503 ApiError where too many wait for it."""
        queue = self._queues.setdefault(key, _Queue())
        if queue.users >= self._limit:
            raise ApiError(
                503,
                "Too many turns of this session are waiting; try again shortly.",
                code="busy",
                headers={"retry-after": "1"},
            )
        queue.users += 1
        try:
            async with queue.lock:
                yield
        finally:
            queue.users -= 1
            if not queue.users:
                # Removed with its last user, or the dict would grow by every session ever seen.
                del self._queues[key]

    def __len__(self) -> int:
        return len(self._queues)


@dataclass(frozen=True, slots=True)
class SessionFinder:
    """Finds the session of a conversation: in the index, then in the store shared by all guards."""

    store: SessionStore
    index: SessionIndex

    @asynccontextmanager
    async def find(
        self,
        owner: Owner,
        messages: Sequence[ComparableMessage],
        view: bytes,
        *,
        session_id: str | None,
        known: SessionKey | None = None,
    ) -> AsyncIterator[SessionKey]:
        """Give the session to judge in; where judging fails, a retry finds it again.

        `view` is that of `messages`; `session_id` the client's own name for the session; `known`
        the session itself where the caller knows it.
        """
        if known is None and session_id is not None:
            known = SessionKey(session_id=owner.bound(session_id), tenant=owner.tenant)
        if known is not None:
            yield known
            return
        if claimed := self._claimed(owner, messages, view):
            found, give_back = claimed
        else:
            found = await self._shared(owner, messages, view) or _new_id(owner, messages)
            give_back = None
        try:
            yield SessionKey(session_id=found, tenant=owner.tenant)
        except BaseException:
            # As it was claimed, since the turn was not recorded.
            if give_back is not None:
                give_back(found)
            raise

    def _claimed(
        self, owner: Owner, messages: Sequence[ComparableMessage], view: bytes
    ) -> tuple[str, Callable[[str], None]] | None:
        """Return a session that ends where the messages begin, and how to give it back."""
        index = self.index
        current = index.claim, index.record_end
        unanswered = index.claim_unanswered, index.mark_unanswered
        # The longest known beginning wins; what follows it is new.
        begun = _prefixes(owner, view, len(messages) - 1)
        ways = ((chain, *way) for chain in begun for way in (current, unanswered))
        # A retry is word for word the same, so it goes before any longer beginning.
        whole = (chain_of(owner, view), *unanswered)
        # Requests without any text are all alike, so nothing tells their sessions.
        for chain, claim, give_back in itertools.chain((whole,), ways) if view else ():
            if (found := claim(chain)) is not None:
                return found, partial(give_back, chain)
        return None

    async def _shared(
        self, owner: Owner, messages: Sequence[ComparableMessage], view: bytes
    ) -> str | None:
        """Return the session of this past, on proof: another user of the key may have had it."""
        history, _ = split_new(messages)
        # A first message alone ("hi") proves nothing: it begins a session.
        if not history:
            return None
        known = self.index.passed(_prefixes(owner, view, len(history), _distinctive(history)))
        return known or await self._in_store(owner, messages)

    async def _in_store(self, owner: Owner, messages: Sequence[ComparableMessage]) -> str | None:
        """Return a stored session that begins alike and fits, else one that was rewritten."""
        contains = owner.bound(_id_prefix(owner, messages))
        query = SessionQuery(tenant=owner.tenant, contains=contains, limit=_MAX_CANDIDATES)
        rewritten = None
        for state in await self.store.sessions(query):
            key = SessionKey(session_id=state.session_id, tenant=state.tenant)
            stored = await self.store.transcript(key)
            # Two thousand long messages take most of a second, for each of the candidates.
            kind, is_proven = await asyncio.to_thread(_likeness, messages, stored)
            if kind in (HistoryKind.INTACT, HistoryKind.RETRIED):
                return state.session_id
            if rewritten is None and is_proven:
                rewritten = state.session_id
        return rewritten


def _new_id(owner: Owner, messages: Sequence[ComparableMessage]) -> str:
    """Return a new session's id, which other guards find by how the conversation begins."""
    return owner.bound(f"{_id_prefix(owner, messages)}{secrets.token_hex(6)}")


def _id_prefix(owner: Owner, messages: Sequence[ComparableMessage]) -> str:
    """Return what the ids of all conversations with this beginning have in common."""
    # The id is made with the first request, which has no answer yet; later ones must lead to it.
    opening = tuple(itertools.takewhile(lambda item: item.role is not Role.ASSISTANT, messages))
    return f"c-{chain_of(owner, view_of(opening)).hex()[:24]}-"


def _prefixes(owner: Owner, view: bytes, longest: int, shortest: int = 1) -> Iterator[bytes]:
    """Yield the chains of the beginnings of a conversation, the longest first."""
    for length in range(longest, max(shortest - 1, longest - _MAX_STEPS_BACK), -1):
        yield chain_of(owner, view[: length * DIGEST_BYTES])


def _distinctive(history: Sequence[ComparableMessage]) -> int:
    """Return how many messages it takes until the past is distinctive (DISTINCTIVE_CHARS)."""
    written = 0
    for count, item in enumerate(history, start=1):
        written += len(item.content) if item.role is Role.USER else 0
        if written >= DISTINCTIVE_CHARS:
            return count
    return len(history) + 1


def _likeness(
    messages: Sequence[ComparableMessage], stored: Sequence[TranscriptEntry]
) -> tuple[HistoryKind, bool]:
    """Return how a request relates to a stored session, and whether it proves to be of it."""
    comparison = compare(messages, stored, learns_replies=True)
    unseen = frozenset(comparison.unseen)
    history, _ = split_new(messages)
    shared = (i.content for i in history if i.role is Role.USER and i not in unseen)
    return comparison.kind, sum(map(len, shared)) >= DISTINCTIVE_CHARS


def _field(body: Mapping[str, object], path: str) -> object:
    value: object = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _trim(entries: OrderedDict[_Key, _Value], used: _Key, limit: int) -> None:
    entries.move_to_end(used)
    if len(entries) > limit:
        entries.popitem(last=False)
