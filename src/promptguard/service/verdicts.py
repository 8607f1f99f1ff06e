"""Every reading of a verdict: as the API, the headers, the logs and the dashboard show it.

The rest of the service passes verdicts on without looking into them, so a change of the
verdict's form is a change of this module alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from promptguard.errors import DataError
from promptguard.risk.weights import ModeWeights
from promptguard.state import SessionState, TranscriptEntry
from promptguard.turns.explain import STOPPING, Explanation
from promptguard.turns.result import TurnResult
from promptguard.verdict import Action, ContentFinding, Mode, ModeName, Verdict

FLAGGED_FROM = Mode.SUSPECT
_KINDS = ("manipulative", "extractive", "harmful")


class TurnView(BaseModel):
    """The outcome of a turn.

    `is_judged` is false where no judge could judge; `action` is then what the settings say for
    that case. `stripped` are the contents to replace by a note before the model sees them, by
    their index in `verdict.content`. `notice` is to be told to the model where the turn is steered.
    """

    session_id: str
    turn: int
    action: Action
    is_enforced: bool
    is_blocked: bool
    is_judged: bool
    mode: ModeName
    turn_risk: float
    accumulated_risk: float
    history: str
    verdict: Verdict
    stripped: list[int] = []
    refusal: str | None = None
    notice: str = ""
    reply_kind: str = "none"
    reply_is_cut: bool = False


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

    turn_risk: float
    mode: ModeName
    action: Action


class ExplanationView(BaseModel):
    """The verdict on the last turn, taken apart.

    `prior` and `nats` add up to the log-odds of `accumulated_risk`; `by_signal` and `by_turn` each
    add up to `nats`. `without` are the earlier turns without which it would have passed, null
    where there are none such. `is_partial`: only the last turns of a very long session were
    replayed.
    """

    session_id: str
    verdict: Verdict
    prior: float
    nats: float
    accumulated_risk: float
    by_signal: list[ShareView]
    by_turn: list[ShareView]
    entered: list[EnteredView]
    alone: AloneView
    without: list[int] | None
    is_partial: bool


class ReplayedTurn(BaseModel):
    """One turn under this configuration and under the other."""

    turn: int
    turn_risk: float
    mode: ModeName
    action: Action
    other_turn_risk: float
    other_mode: ModeName
    other_action: Action


class ReplayView(BaseModel):
    """A session under two configurations."""

    session_id: str
    turns: list[ReplayedTurn]
    is_changed: bool


def turn_view(result: TurnResult, history: str, *, reply_is_cut: bool = False) -> TurnView:
    """Return the public form of a judged turn; `history` is the kind of resent history."""
    state, verdict = result.state, result.verdict
    return TurnView(
        session_id=state.session_id,
        turn=state.turn_count,
        action=verdict.action,
        is_enforced=result.is_enforced,
        is_blocked=result.is_blocked,
        is_judged=is_judged(verdict),
        mode=verdict.mode,
        turn_risk=verdict.turn_risk,
        accumulated_risk=verdict.accumulated_risk,
        history=history,
        verdict=verdict,
        stripped=list(result.stripped),
        refusal=result.reply if result.is_blocked else None,
        notice=result.notice,
        reply_kind=result.reply_kind.value,
        reply_is_cut=reply_is_cut,
    )


def is_judged(verdict: Verdict) -> bool:
    """Say whether a judge judged; a failed second opinion leaves the first one standing."""
    return not verdict.fault or bool(verdict.evidence)


def stored_verdict(entry: TranscriptEntry) -> Verdict | None:
    """Read the verdict stored with a message.

    None where there is none, and where another version of the product wrote a form unknown here:
    one odd row must not break a whole page.
    """
    if not entry.verdict:
        return None
    try:
        return Verdict.from_json(entry.verdict)
    except DataError:
        return None


def contents_of(entry: TranscriptEntry) -> tuple[ContentFinding, ...]:
    """Return the findings on the contents of the turn that this stored message begins."""
    # Most turns have none, and reading a verdict costs more than looking.
    if '"content":[]' in entry.verdict:
        return ()
    verdict = stored_verdict(entry)
    return () if verdict is None else verdict.content


def is_stored_block(entry: TranscriptEntry) -> bool:
    """Say whether the turn that this stored message begins was blocked."""
    verdict = stored_verdict(entry)
    return verdict is not None and verdict.action is Action.BLOCK


def remembered_verdict(state: SessionState) -> Verdict:
    """Return the verdict on the last turn, as far as the state alone tells it."""
    last = state.recent[-1] if state.recent else None
    return Verdict(
        turn=state.turn_count,
        action=Action.ALLOW if last is None else last.action,
        mode=state.mode,
        turn_risk=0.0 if last is None else last.turn_risk,
        accumulated_risk=state.accumulated_risk,
        message_risk=0.0 if last is None else last.message_risk,
        is_hard=last is not None and last.is_hard,
        is_locked=state.lock is not None,
    )


def explanation_view(session_id: str, explanation: Explanation) -> ExplanationView:
    """Return the public form of an explanation."""
    attribution, alone = explanation.attribution, explanation.alone
    return ExplanationView(
        session_id=session_id,
        verdict=explanation.verdict,
        prior=attribution.prior,
        nats=attribution.nats,
        accumulated_risk=attribution.risk,
        by_signal=[ShareView(name=name, nats=nats) for name, nats in attribution.by_signal],
        by_turn=[ShareView(name=str(turn), nats=nats) for turn, nats in attribution.by_turn],
        entered=[EnteredView(turn=entry.turn, mode=entry.mode) for entry in explanation.entered],
        alone=AloneView(turn_risk=alone.turn_risk, mode=alone.mode, action=alone.action),
        without=None if explanation.without is None else list(explanation.without),
        is_partial=explanation.is_partial,
    )


def is_passing(action: Action) -> bool:
    """Say whether a turn with this action reaches the model."""
    return action not in STOPPING


def replay_view(session_id: str, pairs: Sequence[tuple[Verdict, Verdict]]) -> ReplayView:
    """Return the public form of a replay."""
    turns = [
        ReplayedTurn(
            turn=ours.turn,
            turn_risk=ours.turn_risk,
            mode=ours.mode,
            action=ours.action,
            other_turn_risk=theirs.turn_risk,
            other_mode=theirs.mode,
            other_action=theirs.action,
        )
        for ours, theirs in pairs
    ]
    is_changed = any(turn.action != turn.other_action for turn in turns)
    return ReplayView(session_id=session_id, turns=turns, is_changed=is_changed)


def verdict_headers(result: TurnResult) -> dict[str, str]:
    """Return the headers that every response to a judged turn carries."""
    verdict = result.verdict
    headers = {
        "x-promptguard-mode": verdict.mode.name,
        "x-promptguard-risk": f"{verdict.turn_risk:.4f}",
        "x-promptguard-accumulated-risk": f"{verdict.accumulated_risk:.4f}",
        "x-promptguard-session": result.state.session_id,
        "x-promptguard-action": verdict.action.value,
    }
    if not is_judged(verdict):
        headers["x-promptguard-judged"] = "false"
    return headers


def span_attributes(verdict: Verdict) -> dict[str, str | float | list[str]]:
    """Return a verdict as attributes of a trace event, without any text of the conversation."""
    return {
        "gen_ai.evaluation.name": "promptguard.turn_risk",
        "gen_ai.evaluation.score.value": verdict.turn_risk,
        "gen_ai.evaluation.score.label": verdict.mode.name,
        # Names of signals alone: a reason may hold words of a rule.
        "gen_ai.evaluation.explanation": ", ".join(e.signal for e in verdict.top_evidence),
        "promptguard.accumulated_risk": verdict.accumulated_risk,
        "promptguard.action": verdict.action.value,
        "promptguard.tags": list(verdict.tags),
    }


def log_fields(result: TurnResult) -> dict[str, str | int | float | bool | list[str] | None]:
    """Return a judged turn as fields of a log line: names and numbers, never text."""
    state, verdict = result.state, result.verdict
    return {
        "session": state.session_id,
        "tenant": state.tenant,
        "turn": verdict.turn,
        "action": verdict.action.value,
        "is_enforced": result.is_enforced,
        "mode": verdict.mode.name,
        "turn_risk": round(verdict.turn_risk, 4),
        "accumulated_risk": round(verdict.accumulated_risk, 4),
        "is_judged": is_judged(verdict),
        "tags": list(verdict.tags),
        "signals": [entry.signal for entry in verdict.top_evidence[:3]],
        "stripped": [each.origin for each in verdict.content if each.index in result.stripped],
    }


def block_reason(verdict: Verdict) -> str:
    """Return the verdict as LiteLLM shows it: its one JSON form."""
    return verdict.to_json()


def category_scores(verdict: Verdict) -> dict[str, float]:
    """Return the moderation categories and their scores in [0,1]."""
    scores = {score.name: score for score in verdict.scores}
    directive = scores["fil"].score if verdict.directives and "fil" in scores else 0.0
    readers = scores["semantic"].parts if "semantic" in scores else {}
    return {"directive": directive} | {kind: readers[kind] for kind in _KINDS if kind in readers}


def is_flagged(verdict: Verdict, modes: ModeWeights) -> bool:
    """Say whether moderation flags a message with this verdict."""
    return verdict.is_hard or modes.mode_for(verdict.turn_risk) >= FLAGGED_FROM
