"""Sessions in memory: for tests and for one process that need not remember."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from promptguard.errors import SessionNotFound
from promptguard.protocols import SessionKey, SessionLabel, SessionQuery
from promptguard.state import SessionState, TranscriptEntry
from promptguard.stores.checks import check_key, check_save, closed, conflict, key_of
from promptguard.stores.feed import ChangeFeed
from promptguard.stores.redaction import without_old_text


@dataclass(slots=True, kw_only=True)
class _Session:
    state: SessionState
    entries: dict[int, TranscriptEntry] = field(default_factory=dict)
    labels: list[SessionLabel] = field(default_factory=list)


class MemoryStore:
    """A SessionStore that ends with the process; for one event loop."""

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, _Session] = {}
        self._feed = ChangeFeed()
        self._is_closed = False

    async def load(self, key: SessionKey) -> SessionState | None:
        """Return the newest state, or None."""
        session = self._open_sessions(key).get(key)
        return None if session is None else session.state

    async def save(
        self, state: SessionState, *, expected_version: int, entries: Sequence[TranscriptEntry] = ()
    ) -> None:
        """Store `state` and `entries`, or raise VersionConflict."""
        check_save(state, expected_version)
        key = key_of(state)
        session = self._open_sessions(key).get(key)
        found = 0 if session is None else session.state.version
        if found != expected_version:
            raise conflict(found, expected_version)
        if session is None:
            session = self._sessions[key] = _Session(state=state)
        session.state = state
        session.entries.update((entry.position, entry) for entry in entries)
        self._feed.publish(key)

    async def transcript(self, key: SessionKey) -> tuple[TranscriptEntry, ...]:
        """Return every stored message in order."""
        session = self._open_sessions(key).get(key)
        return () if session is None else tuple(e for _, e in sorted(session.entries.items()))

    async def sessions(self, query: SessionQuery) -> tuple[SessionState, ...]:
        """Return the newest states that fit the query."""
        fitting = [
            session.state
            for key, session in self._open_sessions().items()
            if query.tenant in (None, key.tenant)
            and session.state.mode >= query.min_mode
            and query.contains in key.session_id
        ]
        fitting.sort(key=lambda state: (-state.updated, state.tenant, state.session_id))
        return tuple(fitting[query.offset : query.offset + query.limit])

    async def delete(self, key: SessionKey) -> bool:
        """Forget a session wholly; False where there was none."""
        return self._open_sessions(key).pop(key, None) is not None

    async def put_label(self, key: SessionKey, label: SessionLabel) -> None:
        """Record a person's verdict; raises SessionNotFound."""
        session = self._open_sessions(key).get(key)
        if session is None:
            raise SessionNotFound("There is no such session to label.")
        session.labels.append(label)

    async def labels(self, key: SessionKey) -> tuple[SessionLabel, ...]:
        """Return the verdicts given on a session, oldest first."""
        session = self._open_sessions(key).get(key)
        return () if session is None else tuple(sorted(session.labels, key=lambda x: x.timestamp))

    async def redact(self, *, before: float) -> int:
        """Drop the text of transcript entries older than `before`; return how many."""
        return sum(self._redact(key, before) for key in tuple(self._open_sessions()))

    def changes(self) -> AsyncIterator[SessionKey]:
        """Yield the key of each session as it is saved."""
        return self._feed.subscribe()

    async def close(self) -> None:
        """Refuse further use and end the iterations over changes."""
        self._is_closed = True
        await self._feed.close()

    def _redact(self, key: SessionKey, before: float) -> int:
        session = self._sessions[key]
        old = [
            e for e in session.entries.values() if e.content is not None and e.timestamp < before
        ]
        session.entries.update((entry.position, replace(entry, content=None)) for entry in old)
        if old and (state := without_old_text(session.state, before)) is not None:
            session.state = state
            self._feed.publish(key)
        return len(old)

    def _open_sessions(self, key: SessionKey | None = None) -> dict[SessionKey, _Session]:
        if self._is_closed:
            raise closed()
        if key is not None:
            check_key(key)
        return self._sessions
