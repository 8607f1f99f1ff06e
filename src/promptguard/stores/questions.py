"""What both databases are asked alike: statements, and how their rows become the answer.

Only how a statement is run differs between them; how sessions are written does too.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from promptguard.decisions import Decision, DecisionKind
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
from promptguard.stores import statements
from promptguard.stores.rows import check_key, entry_of, label_of, state_in, text_of
from promptguard.stores.statements import Rows, Statement
from promptguard.verdict import Action

_T = TypeVar("_T")
DELETE = "DELETE FROM guard_sessions WHERE tenant = :tenant AND session_id = :session_id"
_ENTRIES = """SELECT position, turn, role, content, content_hash, timestamp, verdict
    FROM guard_entries WHERE tenant = :tenant AND session_id = :session_id"""
# The bounds on the entries follow from the rest; without them a merge join begins at the first.
_JUDGED = """SELECT t.session_id, t.turn, e.timestamp, t.action, t.label, e.verdict
    FROM guard_turns t JOIN guard_entries e ON e.tenant = t.tenant
        AND e.session_id = t.session_id AND e.position = t.position
    WHERE t.tenant = :tenant AND (t.session_id, t.turn) > (:after_session, :after_turn)
        AND e.tenant = :tenant AND e.session_id >= :after_session
        AND (:demo = 1 OR t.is_demo = 0)
    ORDER BY t.session_id, t.turn LIMIT :limit"""


class ReadingStore:
    """The half of a SessionStore that reads, and writes what is no session.

    `_ask` runs statements, `_do` one that writes.
    """

    @abstractmethod
    async def _ask(self, asked: Sequence[Statement], read: Callable[[Sequence[Rows]], _T]) -> _T:
        """Return what `read` makes of the rows of every statement."""

    @abstractmethod
    async def _do(self, statement: Statement) -> int:
        """Write, once however often it is tried; return how many rows that concerned."""

    async def load(self, key: SessionKey) -> SessionState | None:
        """Return the newest state, or None."""
        asked = about(
            key,
            "SELECT state FROM guard_sessions WHERE tenant = :tenant AND session_id = :session_id",
        )
        found = await self._rows(asked, lambda row: SessionState.from_json(row[0]))
        return found[0] if found else None

    async def transcript(self, key: SessionKey) -> tuple[TranscriptEntry, ...]:
        """Return every stored message in order."""
        asked = about(key, f"{_ENTRIES} ORDER BY position")
        return await self._rows(replace(asked, is_long=True), entry_of)

    async def tail(self, key: SessionKey, count: int) -> tuple[TranscriptEntry, ...]:
        """Return the last `count` stored messages in order."""
        asked = about(key, f"{_ENTRIES} ORDER BY position DESC LIMIT :count", count=count)
        # Read from the end by the index, then turned round: the whole would grow with the session.
        return (await self._rows(asked, entry_of))[::-1]

    async def labels(self, key: SessionKey) -> tuple[SessionLabel, ...]:
        """Return the verdicts given on a session, oldest first."""
        asked = about(
            key,
            """SELECT label FROM guard_labels
            WHERE tenant = :tenant AND session_id = :session_id ORDER BY timestamp, id""",
        )
        return await self._rows(asked, lambda row: label_of(row[0]))

    async def judged(self, query: JudgedQuery) -> tuple[JudgedTurn, ...]:
        """Return the next judged turns with their verdicts, by session and turn."""
        values = asdict(query) | {"demo": int(query.with_demo)}
        asked = Statement(sql=_JUDGED, values=values, is_long=True)
        return await self._rows(asked, _judged)

    async def decide(self, decision: Decision) -> None:
        """Record what an operator decided."""
        # The token is made once, outside the work that may be repeated.
        values = asdict(decision) | {"kind": decision.kind.value, "token": uuid.uuid4().hex}
        await self._do(
            Statement(
                sql="""INSERT INTO guard_decisions (write, kind, tenant, author, timestamp, body)
                VALUES (:token, :kind, :tenant, :author, :timestamp, :body)
                ON CONFLICT (write) DO NOTHING""",
                values=values,
            )
        )

    async def decisions(self) -> tuple[Decision, ...]:
        """Return every decision, oldest first."""
        sql = """SELECT number, kind, tenant, author, timestamp, body
            FROM guard_decisions ORDER BY number"""
        return await self._rows(Statement(sql=sql), _decision)

    async def sessions(self, query: SessionQuery) -> tuple[SessionState, ...]:
        """Return the states that fit the query, in its order."""
        found = await self._rows(statements.states(query), lambda row: state_in(row[0]))
        return _readable(found)

    async def page(self, query: SessionQuery) -> SessionListPage:
        """Return the sessions that fit the query as rows of a list, and how many fit in all."""
        return await self._ask(
            (statements.page(query), statements.total(query)),
            lambda answers: SessionListPage(
                rows=_readable(map(statements.page_row, answers[0])), total=answers[1][0][0]
            ),
        )

    async def turns(self, query: TurnQuery) -> tuple[TurnRow, ...]:
        """Return judged turns, the newest first."""
        return await self._rows(statements.turns(query), statements.turn_row)

    async def overview(self, query: OverviewQuery) -> Overview:
        """Sum up the judged turns of a stretch of time."""
        wanted = statements.overview(query)
        return await self._ask(
            tuple(wanted.values()),
            lambda answers: statements.overview_of(query, dict(zip(wanted, answers, strict=True))),
        )

    async def precision(self, tenant: str | None = "default") -> Precision:
        """Count what people said of flagged turns."""
        return await self._ask(
            (statements.precision(tenant),), lambda answers: statements.precision_of(answers[0])
        )

    async def _rows(self, asked: Statement, read: Callable[[Sequence[Any]], _T]) -> tuple[_T, ...]:
        """Return what `read` makes of each row."""
        return await self._ask((asked,), lambda answers: tuple(map(read, answers[0])))


def about(key: SessionKey, sql: str, **values: Any) -> Statement:
    """Return a statement on one session, which it knows as `:tenant` and `:session_id`."""
    check_key(key)
    return Statement(sql=sql, values={"tenant": key.tenant, "session_id": key.session_id, **values})


def _readable(found: Iterable[_T | None]) -> tuple[_T, ...]:
    return tuple(item for item in found if item is not None)


def _decision(row: Sequence[Any]) -> Decision:
    number, kind, tenant, author, timestamp, body = row
    return Decision(
        number=number,
        kind=DecisionKind(kind),
        tenant=tenant,
        author=author,
        timestamp=timestamp,
        body=body,
    )


def _judged(row: Sequence[Any]) -> JudgedTurn:
    session_id, turn, timestamp, action, label, verdict = row
    return JudgedTurn(
        session_id=session_id,
        turn=turn,
        timestamp=timestamp,
        action=Action(action),
        label=label,
        verdict=text_of(verdict) or "",
    )
