"""Every reading of a verdict: as the API, the headers, the logs and the dashboard show it.

The rest of the service passes verdicts on without looking into them, so a change of the
verdict's form is a change of this module alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from promptguard.controller import TurnResult
from promptguard.model.reading import MessageReading
from promptguard.state import Action, Evidence, Mode, TranscriptEntry
from promptguard.turns.explain import PASSING, Explanation
from promptguard.turns.verdict import TurnVerdict

ModeName = Literal["SAFE", "CAUTIOUS", "ELEVATED", "SUSPECT", "CRITICAL", "UNSAFE"]
FLAGGED_FROM = Mode.SUSPECT


class EvidenceView(BaseModel):
    """What one signal adds to the evidence of a turn, in nats."""

    turn: int = 0
    signal: str
    nats: float
    reason: str = ""


class VerdictView(BaseModel):
    """The verdict on one turn; `fault` says why there is none where no judge could judge."""

    turn: int
    action: Action
    risk: float = 0.0
    message_risk: float = 0.0
    mode: ModeName = "SAFE"
    is_hard: bool = False
    tags: list[str] = []
    disguises: list[str] = []
    evidence: list[EvidenceView] = []
    fault: str = ""


class TurnView(BaseModel):
    """The outcome of a turn.

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


class EnteredView(BaseModel):
    """The turn at which a mode was first reached."""

    turn: int
    mode: ModeName


class ShareView(BaseModel):
    """How much of the evidence one signal, or one turn, accounts for."""

    name: str
    nats: float


class AloneView(BaseModel):
    """What the last message would have got by itself."""

    risk: float
    mode: ModeName
    action: Action


class ExplanationView(BaseModel):
    """The verdict on the last turn, taken apart.

    `prior` and `nats` add up to the log-odds of `risk`; `by_signal` and `by_turn` each add up to
    `nats`. `without` are the earlier turns without which it would have passed, null where there
    are none such. `is_partial`: only the last turns of a very long session were replayed.
    """

    session_id: str
    verdict: VerdictView
    prior: float
    nats: float
    risk: float
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
    mode: ModeName
    action: Action
    other_risk: float
    other_mode: ModeName
    other_action: Action


class ReplayView(BaseModel):
    """A session under two configurations."""

    session_id: str
    turns: list[ReplayedTurn]
    is_changed: bool


def turn_view(result: TurnResult, history: str) -> TurnView:
    """Return the public form of a judged turn; `history` is the kind of resent history."""
    state = result.state
    return TurnView(
        session_id=state.session_id,
        turn=state.turn_count,
        action=result.action.value,
        is_enforced=result.is_enforced,
        is_blocked=result.is_blocked,
        is_judged=not result.fault,
        mode=state.mode.name,
        risk=state.accumulated_risk,
        history=history,
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
        mode=_name(verdict.mode),
        action=verdict.action,
        is_hard=verdict.is_hard,
        tags=list(verdict.tags),
        disguises=list(verdict.disguises),
        evidence=[evidence_view(entry) for entry in verdict.evidence],
    )


def evidence_view(entry: Evidence) -> EvidenceView:
    """Return the public form of one entry of evidence."""
    return EvidenceView(turn=entry.turn, signal=entry.signal, nats=entry.nats, reason=entry.reason)


def entered_view(turn: int, mode: Mode) -> EnteredView:
    """Return the public form of the first turn in a mode."""
    return EnteredView(turn=turn, mode=_name(mode))


def stored_verdict(entry: TranscriptEntry) -> VerdictView | None:
    """Read the verdict stored with a message.

    None where there is none, and where another version of the product wrote a form unknown here:
    one odd row must not break a whole page.
    """
    if not entry.verdict:
        return None
    try:
        view = VerdictView.model_validate({**json.loads(entry.verdict), "turn": entry.turn})
    except (TypeError, ValueError):
        return None
    for evidence in view.evidence:
        evidence.turn = entry.turn
    return view


def is_stored_block(entry: TranscriptEntry) -> bool:
    """Say whether the turn that this stored message begins was blocked."""
    return bool(entry.verdict) and json.loads(entry.verdict).get("action") == Action.BLOCK


def explanation_view(session_id: str, explanation: Explanation) -> ExplanationView:
    """Return the public form of an explanation."""
    attribution, alone = explanation.attribution, explanation.alone
    return ExplanationView(
        session_id=session_id,
        verdict=verdict_view(explanation.verdict),
        prior=attribution.prior,
        nats=attribution.nats,
        risk=attribution.risk,
        by_signal=[ShareView(name=name, nats=nats) for name, nats in attribution.by_signal],
        by_turn=[ShareView(name=str(turn), nats=nats) for turn, nats in attribution.by_turn],
        entered=[entered_view(entry.turn, entry.mode) for entry in explanation.entered],
        alone=AloneView(risk=alone.risk, mode=_name(alone.mode), action=alone.action),
        without=None if explanation.without is None else list(explanation.without),
        is_partial=explanation.is_partial,
    )


def is_passing(action: Action) -> bool:
    """Say whether a turn with this action reaches the model."""
    return action in PASSING


def replay_view(session_id: str, pairs: Sequence[tuple[TurnVerdict, TurnVerdict]]) -> ReplayView:
    """Return the public form of a replay."""
    turns = [
        ReplayedTurn(
            turn=ours.turn,
            risk=ours.risk,
            mode=_name(ours.mode),
            action=ours.action,
            other_risk=theirs.risk,
            other_mode=_name(theirs.mode),
            other_action=theirs.action,
        )
        for ours, theirs in pairs
    ]
    is_changed = any(turn.action != turn.other_action for turn in turns)
    return ReplayView(session_id=session_id, turns=turns, is_changed=is_changed)


def verdict_headers(result: TurnResult) -> dict[str, str]:
    """Return the headers that every response to a judged turn carries."""
    state = result.state
    headers = {
        "x-promptguard-mode": state.mode.name,
        "x-promptguard-risk": f"{state.accumulated_risk:.4f}",
        "x-promptguard-session": state.session_id,
        "x-promptguard-action": result.action.value,
    }
    if result.fault:
        headers["x-promptguard-judged"] = "false"
    return headers


def span_attributes(verdict: TurnVerdict) -> dict[str, str | float | list[str]]:
    """Return a verdict as attributes of a trace event, without any text of the conversation."""
    return {
        "gen_ai.evaluation.name": "promptguard.conversation_risk",
        "gen_ai.evaluation.score.value": verdict.risk,
        "gen_ai.evaluation.score.label": verdict.mode.name,
        "gen_ai.evaluation.explanation": ", ".join(e.signal for e in verdict.top_evidence),
        "promptguard.action": verdict.action.value,
        "promptguard.tags": list(verdict.tags),
    }


def log_fields(result: TurnResult) -> dict[str, str | int | float | bool | list[str] | None]:
    """Return a judged turn as fields of a log line: names and numbers, never text."""
    state, verdict = result.state, result.verdict
    return {
        "session": state.session_id,
        "tenant": state.tenant,
        "turn": state.turn_count,
        "action": result.action.value,
        "is_enforced": result.is_enforced,
        "mode": state.mode.name,
        "risk": round(state.accumulated_risk, 4),
        "is_judged": not result.fault,
        "tags": list(verdict.tags) if verdict else [],
        "signals": [entry.signal for entry in verdict.top_evidence[:3]] if verdict else [],
    }


def block_reason(result: TurnResult) -> str:
    """Return one sentence that says why a turn was blocked."""
    verdict = result.verdict
    if verdict is None:
        return "The turn could not be judged."
    tags = f" ({', '.join(verdict.tags)})" if verdict.tags else ""
    return f"The conversation is {verdict.mode.name} at turn {verdict.turn}{tags}."


def category_scores(verdict: TurnVerdict, reading: MessageReading | None) -> dict[str, float]:
    """Return the moderation categories and their scores in [0,1]."""
    scores = {"directive": verdict.fil.harm_score if verdict.fil.violated else 0.0}
    if reading is not None:
        scores |= {
            "manipulative": reading.manipulative,
            "extractive": reading.extractive,
            "harmful": reading.harmful,
        }
    return scores


def is_flagged(verdict: TurnVerdict) -> bool:
    """Say whether moderation flags a message with this verdict."""
    return verdict.mode >= FLAGGED_FROM or verdict.is_hard


def _name(mode: Mode) -> ModeName:
    name: ModeName = mode.name  # type: ignore[assignment]  # ModeName lists the names of Mode
    return name
