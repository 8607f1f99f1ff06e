"""Signal `response`: what the assistant's answers say about the requests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from promptguard.protocols import Subject, TurnContext
from promptguard.signals import SIGNALS, read_tuning
from promptguard.signals.subject import is_same_subject
from promptguard.state import ReplyKind, TurnRecord
from promptguard.verdict import Action, SignalScore

_GAVE_IN = (ReplyKind.COMPLIED, ReplyKind.OPERATIONAL)
_POSITIONS = {
    ReplyKind.REFUSED: 0.0,
    ReplyKind.PARTIAL: 1 / 3,
    ReplyKind.COMPLIED: 2 / 3,
    ReplyKind.OPERATIONAL: 1.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tuning:
    refused: float
    partial: float
    operational: float
    eroded: float
    eroded_operational: float


@SIGNALS.register("response")
def response(ctx: TurnContext) -> SignalScore:
    """Return what the newest answer adds: a refusal, detail for a risky request, or giving in.

    The guard's own refusals are left out, else a block would be evidence for itself.
    """
    before = zip(ctx.state.recent, ctx.subjects.past, strict=True)
    answered = [(turn, subject) for turn, subject in before if _position(turn) is not None]
    if not answered or answered[-1][0] is not ctx.state.recent[-1]:
        return SignalScore(name="response", score=0.0)
    last, _ = answered[-1]
    kind = last.reply.kind if last.reply else ReplyKind.NONE
    position = _POSITIONS[kind]
    parts = {"position": position, "shift": position - (_position(answered[0][0]) or 0.0)}
    refused = _refused_before(answered) if kind in _GAVE_IN else None
    if refused is not None:
        tuning = _tuning()
        score = tuning.eroded_operational if kind is ReplyKind.OPERATIONAL else tuning.eroded
        reason = f"refused at turn {refused.turn}, {kind.value} at turn {last.turn}"
        return SignalScore(name="response", score=score, reason=reason, parts=parts)
    return SignalScore(
        name="response",
        score=_alone(last, kind),
        reason=f"{kind.value} at turn {last.turn}",
        parts=parts,
    )


def _alone(turn: TurnRecord, kind: ReplyKind) -> float:
    """Return what one answer says by itself; detail counts by the risk of what was asked."""
    tuning = _tuning()
    if kind is ReplyKind.REFUSED:
        return tuning.refused
    if kind is ReplyKind.PARTIAL:
        return tuning.partial
    if kind is ReplyKind.OPERATIONAL:
        return tuning.operational * turn.message_risk
    return 0.0


def _refused_before(answered: list[tuple[TurnRecord, Subject]]) -> TurnRecord | None:
    """Return the latest earlier turn on the same subject that was refused."""
    _, now = answered[-1]
    for turn, then in reversed(answered[:-1]):
        if _position(turn) == 0.0 and is_same_subject(then, now):
            return turn
    return None


def _position(turn: TurnRecord) -> float | None:
    """Return how far the assistant went, from refusal 0 to operational detail 1."""
    if turn.reply is None or turn.action is Action.BLOCK:
        return None
    return _POSITIONS.get(turn.reply.kind)


@cache
def _tuning() -> _Tuning:
    return read_tuning("response", _Tuning)
