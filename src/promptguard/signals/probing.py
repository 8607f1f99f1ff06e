"""Signal `probing`: is a request that was turned down being tried again?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS, clipped, either, read_tuning
from promptguard.signals.subject import likeness, overlap, subject_terms
from promptguard.state import ReplyKind, TurnRecord
from promptguard.text.vocabulary import key_terms
from promptguard.verdict import Action, SignalScore


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tuning:
    near_cosine: float
    near_overlap: float
    first_weight: float
    further_weight: float
    disguise_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    turn: int
    likeness: float
    is_decoded: bool


@SIGNALS.register("probing")
def probing(ctx: TurnContext) -> SignalScore:
    """Return how nearly this turn repeats ones that were refused, blocked or flagged."""
    attempts = _attempts(ctx)
    if not attempts:
        return SignalScore(name="probing", score=0.0)
    tuning = _tuning()
    closest = max(attempts, key=lambda attempt: (attempt.likeness, attempt.turn))
    tries = 1.0 - (1.0 - tuning.first_weight) * (1.0 - tuning.further_weight) ** (len(attempts) - 1)
    is_disguised = closest.is_decoded or bool(ctx.views.disguises)
    score = closest.likeness * tries
    if is_disguised:
        score = either((score, score * tuning.disguise_weight))
    how = "again in disguise" if is_disguised else "again"
    reason = f"turn {closest.turn} {how}, {len(attempts)} earlier attempts"
    return SignalScore(
        name="probing", score=score, reason=reason, parts={"attempts": float(len(attempts))}
    )


def is_turned_down(turn: TurnRecord) -> bool:
    """Return whether a turn was refused by the assistant, or blocked or flagged by the guard."""
    is_refused = turn.reply is not None and turn.reply.kind is ReplyKind.REFUSED
    return is_refused or turn.action is Action.BLOCK or turn.is_flagged


def _attempts(ctx: TurnContext) -> list[_Attempt]:
    """Return the earlier turned-down requests that the current one resembles."""
    before = zip(ctx.state.recent, ctx.subjects.past, strict=True)
    earlier = [(turn, then) for turn, then in before if is_turned_down(turn)]
    if not earlier:
        return []
    hidden = [subject_terms(key_terms(view.text)) for view in ctx.views.decoded]
    found = []
    for turn, then in earlier:
        cosine, shared = likeness(then, ctx.subjects.now)
        open_likeness = max(
            _near(cosine, _tuning().near_cosine), _near(shared, _tuning().near_overlap)
        )
        hidden_likeness = max(
            (_near(overlap(then.terms, terms), _tuning().near_overlap) for terms in hidden),
            default=0.0,
        )
        closest = max(open_likeness, hidden_likeness)
        if closest > 0.0:
            is_decoded = hidden_likeness > open_likeness
            found.append(_Attempt(turn=turn.turn, likeness=closest, is_decoded=is_decoded))
    return found


def _near(value: float, threshold: float) -> float:
    """Return 0 below the threshold, then from a half at it to 1 at identity."""
    if value < threshold:
        return 0.0
    return clipped(0.5 + 0.5 * (value - threshold) / (1.0 - threshold))


@cache
def _tuning() -> _Tuning:
    return read_tuning("probing", _Tuning)
