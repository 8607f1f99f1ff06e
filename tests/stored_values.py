"""Stored values for tests: entries, verdicts, records, of which a test gives what it is about."""

from __future__ import annotations

from typing import Any

from promptguard.conversation import Role
from promptguard.queries import StoredTurn
from promptguard.state import SessionState, TranscriptEntry, TurnRecord
from promptguard.turns.result import TurnResult
from promptguard.verdict import Action, Mode, Verdict


def make_entry(content: str | None = "hello", **fields: Any) -> TranscriptEntry:
    """Return a stored message, by default the user's first."""
    values: dict[str, Any] = {
        "position": 0,
        "turn": 1,
        "role": Role.USER,
        "content_hash": "",
        "timestamp": 0.0,
    }
    return TranscriptEntry(content=content, **(values | fields))


def make_verdict(**fields: Any) -> Verdict:
    """Return the verdict on a turn, by default the first and harmless."""
    return Verdict(**({"turn": 1, "action": Action.ALLOW} | fields))


def make_record(**fields: Any) -> TurnRecord:
    """Return what is remembered of a turn, by default the first and harmless."""
    values: dict[str, Any] = {
        "turn": 1,
        "excerpt": "",
        "content_hash": "",
        "timestamp": 0.0,
        "message_risk": 0.0,
        "turn_risk": 0.0,
        "mode": Mode.SAFE,
        "action": Action.ALLOW,
    }
    return TurnRecord(**(values | fields))


def make_stored_turn(**fields: Any) -> StoredTurn:
    """Return a turn as lists see it, by default one that was steered."""
    values: dict[str, Any] = {
        "tenant": "default",
        "session_id": "app:one",
        "turn": 2,
        "position": 4,
        "second": 1000,
        "action": Action.STEER,
        "turn_risk": 0.5,
        "signal": "semantic",
        "reason": "harmful",
    }
    return StoredTurn(**(values | fields))


def make_result(verdict: Verdict, **fields: Any) -> TurnResult:
    """Return the result of a turn, by default enforced and without a reply."""
    values: dict[str, Any] = {"state": SessionState(session_id="app:s"), "is_enforced": True}
    return TurnResult(verdict=verdict, **(values | fields))
