"""Signal `continuation`: does this turn go on with something risky that came before?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from promptguard.protocols import Subject, TurnContext
from promptguard.signals import SIGNALS, clipped, read_tuning
from promptguard.signals.subject import likeness
from promptguard.state import ReplyKind
from promptguard.verdict import SignalScore


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tuning:
    near_cosine: float
    near_overlap: float
    kept_per_turn: float
    operational: float


@SIGNALS.register("continuation")
def continuation(ctx: TurnContext) -> SignalScore:
    """Return the risk of the earlier turn that this one continues, by how nearly it does.

    A turn that only asks to go on ("and the next step?") continues what it follows, back to the
    last turn that names a subject; any other continues the turns it is close to in meaning or
    words. A reply that gave operational detail makes its turn weigh more, a refusal does not make
    it weigh less.
    """
    best, which = 0.0, 0
    chained = _chained(ctx) if ctx.subjects.is_follow_up else frozenset[int]()
    before = zip(reversed(ctx.state.recent), reversed(ctx.subjects.past), strict=True)
    for age, (turn, then) in enumerate(before):
        near = _relevance(then, ctx.subjects.now)
        relevance = max(near, 1.0 if turn.turn in chained else 0.0)
        risk = turn.turn_risk
        if turn.reply is not None and turn.reply.kind is ReplyKind.OPERATIONAL:
            risk = clipped(risk * (1.0 + _tuning().operational))
        value = relevance * risk * _tuning().kept_per_turn ** age
        if value > best:
            best, which = value, turn.turn
    return SignalScore(
        name="continuation",
        score=best,
        reason=f"goes on from turn {which}",
        parts={"turn": float(which)},
    )


def _chained(ctx: TurnContext) -> frozenset[int]:
    """Return the turns a bare follow-up goes on from: back to the last that names a subject."""
    chain = []
    for turn, then in zip(reversed(ctx.state.recent), reversed(ctx.subjects.past), strict=True):
        chain.append(turn.turn)
        if then.terms and not turn.is_follow_up:
            break
    return frozenset(chain)


def _relevance(then: Subject, now: Subject) -> float:
    tuning = _tuning()
    cosine, shared = likeness(then, now)
    return max(_above(cosine, tuning.near_cosine), _above(shared, tuning.near_overlap))


def _above(value: float, threshold: float) -> float:
    """Return 0 up to the threshold, rising to 1 at identity."""
    return max(0.0, (value - threshold) / (1.0 - threshold))


@cache
def _tuning() -> _Tuning:
    return read_tuning("continuation", _Tuning)
