"""Sessions in memory: for tests and for one process that need not remember."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from promptguard.decisions import Decision
from promptguard.errors import SessionNotFound
from promptguard.protocols import SessionKey, SessionLabel, SessionQuery
from promptguard.queries import (
    JudgedQuery,
    JudgedTurn,
    Overview,
    OverviewQuery,
    Precision,
    SessionListPage,
    SessionRow,
    SessionSort,
    StoredTurn,
    TurnQuery,
    TurnRow,
    fits_label,
)
from promptguard.state import SessionState, TranscriptEntry, is_demo
from promptguard.stores.feed import ChangeFeed
from promptguard.stores.redaction import without_old_text
from promptguard.stores.rows import (
    check_key,
    check_save,
    closed,
    conflict,
    id_forms,
    key_name,
    turns_of,
    verdict_in,
    words_of,
)
from promptguard.stores.statements import overview_of_turns, precision_of
from promptguard.verdict import Verdict


@dataclass(slots=True, kw_only=True)
class _Session:
    state: SessionState
    entries: dict[int, TranscriptEntry] = field(default_factory=dict)
    labels: list[SessionLabel] = field(default_factory=list)
    turns: dict[int, StoredTurn] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.labels[-1].verdict if self.labels else ""

    def text(self, turn: StoredTurn | None) -> str | None:
        entry = None if turn is None else self.entries.get(turn.position)
        return None if entry is None else entry.content

    def judged(self, number: int) -> JudgedTurn:
        turn = self.turns[number]
        entry = self.entries[turn.position]
        return JudgedTurn(
            session_id=turn.session_id,
            turn=number,
            timestamp=entry.timestamp,
            action=turn.action,
            label=turn.label,
            verdict=entry.verdict,
        )

    def verdict(self, turn: StoredTurn) -> Verdict | None:
        return verdict_in(self.entries[turn.position].verdict)


class MemoryStore:
    """A SessionStore that ends with the process; for one event loop."""

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, _Session] = {}
        self._feed = ChangeFeed()
        self._decisions: list[Decision] = []
        self._is_closed = False

    async def load(self, key: SessionKey) -> SessionState | None:
        """Return the newest state, or None."""
        session = self._open_sessions(key).get(key)
        return None if session is None else session.state

    async def save(
        self, state: SessionState, *, expected_version: int, entries: Sequence[TranscriptEntry] = ()
    ) -> None:
        """Store `state` and `entries`, or raise VersionConflict."""
        key = check_save(state, expected_version)
        session = self._open_sessions().get(key)
        # No lock: nothing is awaited between this look and the write.
        found = 0 if session is None else session.state.version
        if found != expected_version:
            raise conflict(found, expected_version)
        if session is None:
            session = self._sessions[key] = _Session(state=state)
        session.state = state
        session.entries.update((entry.position, entry) for entry in entries)
        for turn in turns_of(key, entries):
            known = session.turns.get(turn.turn)
            # A turn that is saved again keeps what people said of it.
            session.turns[turn.turn] = replace(turn, label=known.label if known else "")
        if self._feed.readers:
            self._feed.publish(key)

    async def transcript(self, key: SessionKey) -> tuple[TranscriptEntry, ...]:
        """Return every stored message in order."""
        session = self._open_sessions(key).get(key)
        return () if session is None else tuple(e for _, e in sorted(session.entries.items()))

    async def tail(self, key: SessionKey, count: int) -> tuple[TranscriptEntry, ...]:
        """Return the last `count` stored messages in order."""
        session = self._open_sessions(key).get(key)
        if session is None:
            return ()
        # Counted from the front: an end of none would be written as the whole.
        places = sorted(session.entries)[max(0, len(session.entries) - count) :]
        return tuple(session.entries[position] for position in places)

    async def check_writable(self) -> None:
        """Raise StoreError once the store is closed."""
        self._open_sessions()

    async def sessions(self, query: SessionQuery) -> tuple[SessionState, ...]:
        """Return the states that fit the query, in its order."""
        fitting = self._fitting(query)[query.offset : query.offset + query.limit]
        return tuple(session.state for session in fitting)

    async def page(self, query: SessionQuery) -> SessionListPage:
        """Return the sessions that fit the query as rows of a list, and how many fit in all."""
        fitting = self._fitting(query)
        shown = fitting[query.offset : query.offset + query.limit]
        return SessionListPage(rows=tuple(map(_row, shown)), total=len(fitting))

    async def turns(self, query: TurnQuery) -> tuple[TurnRow, ...]:
        """Return judged turns, the newest first."""
        fitting = [
            TurnRow(turn=turn, text=session.text(turn), verdict=session.verdict(turn))
            for session in self._open_sessions().values()
            for turn in session.turns.values()
            if query.fits(turn)
        ]
        # Two stable sorts, because strings cannot be negated for a descending order.
        fitting.sort(key=lambda row: (row.turn.tenant, row.turn.session_id, -row.turn.turn))
        fitting.sort(key=lambda row: -row.turn.second)
        return tuple(fitting[query.offset : query.offset + query.limit])

    async def overview(self, query: OverviewQuery) -> Overview:
        """Sum up the judged turns of a stretch of time."""
        turns = [
            turn
            for session in self._open_sessions().values()
            for turn in session.turns.values()
            if query.turns.fits(turn) and query.tenant in (None, turn.tenant)
        ]
        return overview_of_turns(query, turns)

    async def precision(self, tenant: str | None = "default") -> Precision:
        """Count what people said of flagged turns."""
        found = Counter(
            (turn.label, turn.action)
            for session in self._open_sessions().values()
            for turn in session.turns.values()
            if turn.label and turn.is_flagged and not turn.is_demo and tenant in (None, turn.tenant)
        )
        return precision_of([(*names, count) for names, count in found.items()])

    async def judged(self, query: JudgedQuery) -> tuple[JudgedTurn, ...]:
        """Return the next judged turns with their verdicts, by session and turn."""
        after = (query.after_session, query.after_turn)
        fitting = sorted(
            (key.session_id, number, session)
            for key, session in self._open_sessions().items()
            if key.tenant == query.tenant and (query.with_demo or not is_demo(key.session_id))
            for number in session.turns
            if (key.session_id, number) > after
        )
        return tuple(session.judged(number) for _, number, session in fitting[: query.limit])

    async def decide(self, decision: Decision) -> None:
        """Record what an operator decided."""
        self._open_sessions()
        self._decisions.append(replace(decision, number=len(self._decisions) + 1))

    async def decisions(self) -> tuple[Decision, ...]:
        """Return every decision, oldest first."""
        self._open_sessions()
        return tuple(self._decisions)

    async def delete(self, key: SessionKey) -> bool:
        """Forget a session wholly; False where there was none."""
        return self._open_sessions(key).pop(key, None) is not None

    async def put_label(self, key: SessionKey, label: SessionLabel) -> None:
        """Record a person's verdict; raises SessionNotFound."""
        session = self._open_sessions(key).get(key)
        if session is None:
            raise SessionNotFound("There is no such session to label.")
        session.labels.append(label)
        for number, turn in session.turns.items():
            if label.turn in (None, number):
                session.turns[number] = replace(turn, label=label.verdict)

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

    def _fitting(self, query: SessionQuery) -> list[_Session]:
        words = words_of(query.search)
        fitting = [s for s in self._open_sessions().values() if _fits(s, query, words)]
        fitting.sort(key=lambda s: (-s.state.updated, s.state.tenant, s.state.session_id))
        if query.sort is not SessionSort.UPDATED or query.is_ascending:
            sign = 1 if query.is_ascending else -1
            fitting.sort(key=lambda s: sign * _sorted_by(s, query.sort))
        return fitting

    def _redact(self, key: SessionKey, before: float) -> int:
        session = self._sessions[key]
        old = [
            e for e in session.entries.values() if e.content is not None and e.timestamp < before
        ]
        session.entries.update((entry.position, replace(entry, content=None)) for entry in old)
        for number, turn in session.turns.items():
            if turn.second < before:
                session.turns[number] = replace(turn, words=None)
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


def _fits(session: _Session, query: SessionQuery, words: Sequence[str]) -> bool:
    state, turns = session.state, session.turns.values()
    session_id, lowered = state.session_id, state.session_id.lower()
    return (
        query.tenant in (None, state.tenant)
        and state.mode >= query.min_mode
        and any(form in session_id for form in id_forms(query.contains))
        and query.turns.is_demo in (None, is_demo(session_id))
        and query.turns.key in ("", key_name(session_id))
        and fits_label(query.label, session.label)
        and (not query.turns.restricts_turns or any(map(query.turns.fits, turns)))
        and (
            all(any(form.lower() in lowered for form in id_forms(word)) for word in words)
            or any(all(word in (turn.words or "") for word in words) for turn in turns)
        )
    )


def _sorted_by(session: _Session, sort: SessionSort) -> float:
    state = session.state
    return {
        SessionSort.UPDATED: state.updated,
        SessionSort.RISK: state.accumulated_risk,
        SessionSort.PEAK: state.profile.peak_risk,
        SessionSort.TURNS: state.turn_count,
        SessionSort.BLOCKED: state.profile.blocked,
    }[sort]


def _row(session: _Session) -> SessionRow:
    worst = max(
        session.turns.values(),
        key=lambda turn: (turn.action.severity, turn.turn_risk, -turn.turn),
        default=None,
    )
    return SessionRow(
        state=session.state, label=session.label, worst=worst, text=session.text(worst)
    )
