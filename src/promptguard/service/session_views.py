"""Sessions as the API shows them."""

from __future__ import annotations

from pydantic import BaseModel

from promptguard.core.prompt import without_lone_surrogates
from promptguard.protocols import SessionLabel
from promptguard.service.turn_view import EvidenceView, VerdictView, evidence_view, verdict_view
from promptguard.state import Mode, SessionState, TranscriptEntry
from promptguard.turns.explain import Explanation
from promptguard.turns.verdict import TurnVerdict


class EnteredView(BaseModel):
    """The turn at which a mode was first reached."""

    turn: int
    mode: str


class SessionSummary(BaseModel):
    """A session in one row."""

    session_id: str
    tenant: str
    mode: str
    risk: float
    peak_risk: float
    turns: int
    blocked: int
    history_rewrites: int
    created: float
    updated: float


class SessionList(BaseModel):
    """One page of sessions, newest first."""

    sessions: list[SessionSummary]


class EntryView(BaseModel):
    """One stored message; `content` is null where text is not kept."""

    position: int
    turn: int
    role: str
    content: str | None
    timestamp: float


class LabelView(BaseModel):
    """What a person said of a session."""

    verdict: str
    author: str
    timestamp: float
    note: str


class SessionDetail(BaseModel):
    """A session with its transcript, evidence and labels."""

    summary: SessionSummary
    entered: list[EnteredView]
    evidence: list[EvidenceView]
    transcript: list[EntryView]
    labels: list[LabelView]


class ShareView(BaseModel):
    """How much of the evidence one signal, or one turn, stands for."""

    name: str
    nats: float


class AloneView(BaseModel):
    """What the last message would have got by itself."""

    risk: float
    mode: str
    action: str


class ExplanationView(BaseModel):
    """The verdict on the last turn, taken apart.

    `without` are the earlier turns without which it would have passed, null where there are none
    such. `is_partial`: only the last turns of a very long session were replayed.
    """

    session_id: str
    verdict: VerdictView
    prior: float
    by_signal: list[ShareView]
    by_turn: list[ShareView]
    entered: list[EnteredView]
    alone: AloneView
    without: list[int] | None
    is_partial: bool


class ReplayedTurn(BaseModel):
    """One turn under this configuration and under the other."""

    turn: int
    risk: float
    mode: str
    action: str
    other_risk: float
    other_mode: str
    other_action: str


class ReplayView(BaseModel):
    """A session under two configurations."""

    session_id: str
    turns: list[ReplayedTurn]
    is_changed: bool


class Deleted(BaseModel):
    """A session that is no more."""

    session_id: str
    deleted: bool


def summary_of(state: SessionState) -> SessionSummary:
    """Return a session in one row."""
    return SessionSummary(
        session_id=state.session_id,
        tenant=state.tenant,
        mode=state.mode.name,
        risk=state.accumulated_risk,
        peak_risk=state.profile.peak_risk,
        turns=state.turn_count,
        blocked=state.profile.blocked,
        history_rewrites=state.history_rewrites,
        created=state.created,
        updated=state.updated,
    )


def detail_of(
    state: SessionState, entries: tuple[TranscriptEntry, ...], labels: tuple[SessionLabel, ...]
) -> SessionDetail:
    """Return a session with all that is stored of it."""
    return SessionDetail(
        summary=summary_of(state),
        entered=[_entered(entry.turn, entry.mode) for entry in state.entered],
        evidence=[evidence_view(entry) for entry in state.ledger.entries],
        transcript=[
            EntryView(
                position=entry.position,
                turn=entry.turn,
                role=entry.role.value,
                content=None if entry.content is None else without_lone_surrogates(entry.content),
                timestamp=entry.timestamp,
            )
            for entry in entries
        ],
        labels=[label_of(label) for label in labels],
    )


def label_of(label: SessionLabel) -> LabelView:
    """Return the public form of a label."""
    return LabelView(
        verdict=label.verdict, author=label.author, timestamp=label.timestamp, note=label.note
    )


def explanation_of(session_id: str, found: Explanation) -> ExplanationView:
    """Return the public form of an explanation."""
    given = found.attribution
    return ExplanationView(
        session_id=session_id,
        verdict=verdict_view(found.verdict),
        prior=given.prior,
        by_signal=[ShareView(name=name, nats=nats) for name, nats in given.by_signal],
        by_turn=[ShareView(name=str(turn), nats=nats) for turn, nats in given.by_turn],
        entered=[_entered(entry.turn, entry.mode) for entry in found.entered],
        alone=AloneView(
            risk=found.alone.risk, mode=found.alone.mode.name, action=found.alone.action.value
        ),
        without=None if found.without is None else list(found.without),
        is_partial=found.is_partial,
    )


def replay_of(session_id: str, pairs: tuple[tuple[TurnVerdict, TurnVerdict], ...]) -> ReplayView:
    """Return the public form of a replay."""
    turns = [
        ReplayedTurn(
            turn=ours.turn,
            risk=ours.risk,
            mode=ours.mode.name,
            action=ours.action.value,
            other_risk=theirs.risk,
            other_mode=theirs.mode.name,
            other_action=theirs.action.value,
        )
        for ours, theirs in pairs
    ]
    is_changed = any(turn.action != turn.other_action for turn in turns)
    return ReplayView(session_id=session_id, turns=turns, is_changed=is_changed)


def _entered(turn: int, mode: Mode) -> EnteredView:
    return EnteredView(turn=turn, mode=mode.name)
