"""A judged turn as the API shows it."""

from __future__ import annotations

from pydantic import BaseModel

from promptguard.service.intake import Admission
from promptguard.state import Evidence
from promptguard.turns.verdict import TurnVerdict


class EvidenceView(BaseModel):
    """What one signal said of a turn, in nats."""

    turn: int
    signal: str
    nats: float
    reason: str


class VerdictView(BaseModel):
    """The verdict on one turn."""

    turn: int
    risk: float
    message_risk: float
    mode: str
    action: str
    is_hard: bool
    tags: list[str]
    disguises: list[str]
    evidence: list[EvidenceView]


class TurnView(BaseModel):
    """What became of a turn.

    `is_judged` is false where no judge could judge; `action` is then what the settings say for
    that case. `verdict` is also missing where the same turn is asked once more without having
    been answered: it is not judged twice.
    """

    session_id: str
    turn: int
    action: str
    is_enforced: bool
    is_blocked: bool
    is_judged: bool
    mode: str
    risk: float
    history: str
    verdict: VerdictView | None
    refusal: str | None
    reply_kind: str
    reply_is_cut: bool = False
    contradicts_itself: bool


def turn_view(admission: Admission) -> TurnView:
    """Return the public form of an admitted turn."""
    result, state = admission.result, admission.state
    return TurnView(
        session_id=state.session_id,
        turn=state.turn_count,
        action=result.action.value,
        is_enforced=result.is_enforced,
        is_blocked=result.is_blocked,
        is_judged=not result.fault,
        mode=state.mode.name,
        risk=state.accumulated_risk,
        history=admission.history.value,
        verdict=None if result.verdict is None else verdict_view(result.verdict),
        refusal=result.reply if result.is_blocked else None,
        reply_kind=result.reply_kind.value,
        contradicts_itself=result.contradicts_itself,
    )


def verdict_view(verdict: TurnVerdict) -> VerdictView:
    """Return the public form of a verdict."""
    return VerdictView(
        turn=verdict.turn,
        risk=verdict.risk,
        message_risk=verdict.message_risk,
        mode=verdict.mode.name,
        action=verdict.action.value,
        is_hard=verdict.is_hard,
        tags=list(verdict.tags),
        disguises=list(verdict.disguises),
        evidence=[evidence_view(entry) for entry in verdict.evidence],
    )


def evidence_view(entry: Evidence) -> EvidenceView:
    """Return the public form of one entry of evidence."""
    return EvidenceView(turn=entry.turn, signal=entry.signal, nats=entry.nats, reason=entry.reason)
