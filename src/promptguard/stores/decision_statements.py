"""Operators' decisions, and all judged turns in order, as SQL that both databases answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from promptguard.decisions import Decision, DecisionKind
from promptguard.queries import JudgedQuery, JudgedTurn
from promptguard.stores.rows import text_of
from promptguard.stores.statements import Statement
from promptguard.verdict import Action

_COLUMNS = "kind, tenant, author, timestamp, body"


def put(decision: Decision, token: str) -> Statement:
    """Record a decision, once for each token."""
    return Statement(
        sql=f"""INSERT INTO guard_decisions (write, {_COLUMNS})
        VALUES (:token, :kind, :tenant, :author, :timestamp, :body)
        ON CONFLICT (write) DO NOTHING""",
        values={
            "token": token,
            "kind": decision.kind.value,
            "tenant": decision.tenant,
            "author": decision.author,
            "timestamp": decision.timestamp,
            "body": decision.body,
        },
    )


def listed() -> Statement:
    """Ask for every decision, the oldest first."""
    return Statement(
        sql=f"SELECT number, {_COLUMNS} FROM guard_decisions ORDER BY number", values={}
    )


def decision_of(row: Sequence[Any]) -> Decision:
    """Return a row of `listed`."""
    number, kind, tenant, author, timestamp, body = row
    return Decision(
        number=number,
        kind=DecisionKind(kind),
        tenant=tenant,
        author=author,
        timestamp=timestamp,
        body=body,
    )


def judged(query: JudgedQuery) -> Statement:
    """Ask for the next judged turns with their verdicts, session by session."""
    # The bounds on the entries follow from the rest; without them a merge join begins at the first.
    return Statement(
        sql="""SELECT t.session_id, t.turn, e.timestamp, t.action, t.label, e.verdict
        FROM guard_turns t JOIN guard_entries e ON e.tenant = t.tenant
            AND e.session_id = t.session_id AND e.position = t.position
        WHERE t.tenant = :tenant AND (t.session_id, t.turn) > (:after_session, :after_turn)
            AND e.tenant = :tenant AND e.session_id >= :after_session
            AND (:demo = 1 OR t.is_demo = 0)
        ORDER BY t.session_id, t.turn LIMIT :limit""",
        values={
            "tenant": query.tenant,
            "after_session": query.after_session,
            "after_turn": query.after_turn,
            "demo": int(query.with_demo),
            "limit": query.limit,
        },
    )


def judged_of(row: Sequence[Any]) -> JudgedTurn:
    """Return a row of `judged`."""
    session_id, turn, timestamp, action, label, verdict = row
    return JudgedTurn(
        session_id=session_id,
        turn=turn,
        timestamp=timestamp,
        action=Action(action),
        label=label,
        verdict=text_of(verdict) or "",
    )
