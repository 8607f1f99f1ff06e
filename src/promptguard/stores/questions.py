"""What both databases are asked alike: statements, and how their rows become the answer.

Only how a statement is run differs between them; how sessions are written does too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from promptguard.decisions import Decision
from promptguard.protocols import SessionKey, SessionLabel, SessionQuery
from promptguard.queries import (
    JudgedQuery,
    JudgedTurn,
    Overview,
    OverviewQuery,
    Precision,
    SessionListPage,
    TurnQuery,
    TurnRow,
)
from promptguard.state import SessionState, TranscriptEntry
from promptguard.stores import decision_statements as decided
from promptguard.stores import statements
from promptguard.stores.rows import EntryRow, check_key, entry_of, label_of, state_in
from promptguard.stores.statements import Rows, Statement

_T = TypeVar("_T")
_ENTRIES = """SELECT position, turn, role, content, content_hash, timestamp, verdict
    FROM guard_entries WHERE tenant = :tenant AND session_id = :session_id"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[_T]):
    """Statements to run one after the other, and what makes the answer of all their rows.

    `is_long`: the answer may be a whole transcript, and turns must not wait for it.
    """

    statements: tuple[Statement, ...]
    read: Callable[[Sequence[Rows]], _T]
    is_long: bool = False


class ReadingStore:
    """The half of a SessionStore that reads. `_ask` runs a question's statements."""

    @abstractmethod
    async def _ask(self, question: Question[_T]) -> _T:
        """Return the answer to a question."""

    async def load(self, key: SessionKey) -> SessionState | None:
        """Return the newest state, or None."""
        asked = _about(
            key,
            "SELECT state FROM guard_sessions WHERE tenant = :tenant AND session_id = :session_id",
        )
        found = await self._rows(asked, lambda row: SessionState.from_json(row[0]))
        return found[0] if found else None

    async def transcript(self, key: SessionKey) -> tuple[TranscriptEntry, ...]:
        """Return every stored message in order."""
        return await self._rows(_about(key, f"{_ENTRIES} ORDER BY position"), _entry, is_long=True)

    async def tail(self, key: SessionKey, count: int) -> tuple[TranscriptEntry, ...]:
        """Return the last `count` stored messages in order."""
        asked = _about(key, f"{_ENTRIES} ORDER BY position DESC LIMIT :count", count=count)
        # Read from the end by the index, then turned round: the whole would grow with the session.
        return (await self._rows(asked, _entry))[::-1]

    async def labels(self, key: SessionKey) -> tuple[SessionLabel, ...]:
        """Return the verdicts given on a session, oldest first."""
        asked = _about(
            key,
            """SELECT label FROM guard_labels
            WHERE tenant = :tenant AND session_id = :session_id ORDER BY timestamp, id""",
        )
        return await self._rows(asked, lambda row: label_of(row[0]))

    async def judged(self, query: JudgedQuery) -> tuple[JudgedTurn, ...]:
        """Return the next judged turns with their verdicts, by session and turn."""
        return await self._rows(decided.judged(query), decided.judged_of, is_long=True)

    async def decisions(self) -> tuple[Decision, ...]:
        """Return every decision, oldest first."""
        return await self._rows(decided.listed(), decided.decision_of)

    async def sessions(self, query: SessionQuery) -> tuple[SessionState, ...]:
        """Return the states that fit the query, in its order."""
        found = await self._rows(statements.states(query), lambda row: state_in(row[0]))
        return _readable(found)

    async def page(self, query: SessionQuery) -> SessionListPage:
        """Return the sessions that fit the query as rows of a list, and how many fit in all."""
        return await self._ask(
            Question(
                statements=(statements.page(query), statements.total(query)),
                read=lambda answers: SessionListPage(
                    rows=_readable(map(statements.page_row, answers[0])), total=answers[1][0][0]
                ),
            )
        )

    async def turns(self, query: TurnQuery) -> tuple[TurnRow, ...]:
        """Return judged turns, the newest first."""
        return await self._rows(statements.turns(query), statements.turn_row)

    async def overview(self, query: OverviewQuery) -> Overview:
        """Sum up the judged turns of a stretch of time."""
        wanted = statements.overview(query)
        return await self._ask(
            Question(
                statements=tuple(wanted.values()),
                read=lambda answers: statements.overview_of(
                    query, dict(zip(wanted, answers, strict=True))
                ),
            )
        )

    async def precision(self, tenant: str | None = "default") -> Precision:
        """Count what people said of flagged turns."""
        return statements.precision_of(await self._rows(statements.precision(tenant), tuple))

    async def _rows(
        self, asked: Statement, read: Callable[[Sequence[Any]], _T], *, is_long: bool = False
    ) -> tuple[_T, ...]:
        """Return what `read` makes of each row."""
        return await self._ask(
            Question(
                statements=(asked,),
                read=lambda answers: tuple(map(read, answers[0])),
                is_long=is_long,
            )
        )


def _about(key: SessionKey, sql: str, **values: int) -> Statement:
    check_key(key)
    return Statement(sql=sql, values={"tenant": key.tenant, "session_id": key.session_id, **values})


def _readable(found: Iterable[_T | None]) -> tuple[_T, ...]:
    return tuple(item for item in found if item is not None)


def _entry(row: Sequence[Any]) -> TranscriptEntry:
    return entry_of(EntryRow(*row))
