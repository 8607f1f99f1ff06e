"""Signal `behavior`: does the way of asking look scripted, pointed or strategic?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from promptguard.protocols import Subject, TurnContext
from promptguard.signals import SIGNALS, clipped, either, read_tuning
from promptguard.signals.phrases import Phrase, phrases_in
from promptguard.signals.subject import is_same_subject
from promptguard.signals.trajectory import turn_risks
from promptguard.verdict import SignalScore

_SAME_CLOCK_S = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tuning:
    min_gaps: int
    regular_variation: float
    hasty_gap_s: float
    timing_weight: float
    typed_chars_per_s: float
    pasted_share: float
    min_typed_chars: int
    typing_weight: float
    directed_weight: float
    risky: float
    switching_weight: float
    rewritten_weight: float


@SIGNALS.register("behavior")
def behavior(ctx: TurnContext) -> SignalScore:
    """Return the chance, from weak and weighted hints, that the conversation is driven."""
    tuning = _tuning()
    parts = {
        "scripted timing": tuning.timing_weight * _timing(ctx, tuning),
        "automated typing": tuning.typing_weight * _typing(ctx, tuning),
        "directed questions": tuning.directed_weight * _directed(ctx),
        "strategic switching": tuning.switching_weight * _switching(ctx, tuning),
        "history rewritten": tuning.rewritten_weight * float(ctx.history_rewritten),
    }
    named = sorted((name for name, value in parts.items() if value), key=lambda n: -parts[n])
    return SignalScore(
        name="behavior", score=either(parts.values()), reason=", ".join(named), parts=parts
    )


def _timing(ctx: TurnContext, tuning: _Tuning) -> float:
    """Return 1 for a perfectly regular or inhumanly fast rhythm, 0 for a human one.

    Gaps that are exactly alike come from a clock that was made up (a replay, a test), not from
    a script: a network always jitters.
    """
    profile = ctx.state.profile
    if profile.gap_count < tuning.min_gaps or profile.gap_mean_s <= 0.0:
        return 0.0
    deviation_s = math.sqrt(max(0.0, profile.gap_m2_s) / profile.gap_count)
    if deviation_s < _SAME_CLOCK_S:
        return 0.0
    regular = 1.0 - deviation_s / profile.gap_mean_s / tuning.regular_variation
    hasty = 1.0 - profile.gap_mean_s / tuning.hasty_gap_s
    return clipped(max(regular, hasty))


def _typing(ctx: TurnContext, tuning: _Tuning) -> float:
    """Return 1 where the client reports a message typed faster than hands can, or pasted."""
    chars = len(ctx.text)
    if chars < tuning.min_typed_chars:
        return 0.0
    hints = ctx.client
    is_fast = hints.typing_ms is not None and (
        hints.typing_ms <= 0.0 or chars / (hints.typing_ms / 1000.0) > tuning.typed_chars_per_s
    )
    is_pasted = hints.keystrokes is not None and hints.keystrokes < tuning.pasted_share * chars
    return 1.0 if is_fast or is_pasted else 0.0


def _directed(ctx: TurnContext) -> float:
    """Return the mean recent risk where the question presses for exact detail."""
    phrases = phrases_in(ctx.views.folded)
    if Phrase.DIRECTED not in phrases or Phrase.EXPLORATORY in phrases:
        return 0.0
    risks = turn_risks(ctx)
    return sum(risks) / len(risks)


def _switching(ctx: TurnContext, tuning: _Tuning) -> float:
    """Return 1 where a risky subject was left for a harmless one and is now taken up again."""
    if ctx.message_risk < tuning.risky or len(ctx.state.recent) < 2:
        return 0.0
    was_left = False
    for turn, then in zip(reversed(ctx.state.recent), reversed(ctx.subjects.past), strict=True):
        is_calm = turn.message_risk < tuning.risky
        is_same = _is_related(then, ctx.subjects.now)
        if is_calm and not is_same:
            was_left = True
        elif not is_calm and is_same:
            return 1.0 if was_left else 0.0
    return 0.0


def _is_related(then: Subject, now: Subject) -> bool:
    """Return whether a turn is on the current subject; one without a subject is on any."""
    return not then.terms or is_same_subject(then, now)


@cache
def _tuning() -> _Tuning:
    return read_tuning("behavior", _Tuning)
