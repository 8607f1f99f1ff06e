"""How the session goes: the risk so far, its shape, the way of asking, the answers given.

Signals `session`, `trajectory`, `behavior` and `response`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median

from promptguard.model.network import log_odds
from promptguard.protocols import Subject, TurnContext
from promptguard.signals import SIGNALS, clipped, noisy_or, read_tuning
from promptguard.signals.subject import is_same_subject
from promptguard.signals.wording import Phrase, phrases_in
from promptguard.state import RECENT_TURNS, ReplyKind, TurnRecord
from promptguard.verdict import Action, SignalScore

# From these log-odds of the message alone on, the past counts a little, and wholly from even on.
_HARMLESS = 3.0
_MIN_TURNS = 3
_SAME_CLOCK_S = 1e-3
_GAVE_IN = (ReplyKind.COMPLIED, ReplyKind.OPERATIONAL)
_POSITIONS = {
    ReplyKind.REFUSED: 0.0,
    ReplyKind.PARTIAL: 1 / 3,
    ReplyKind.COMPLIED: 2 / 3,
    ReplyKind.OPERATIONAL: 1.0,
}


@SIGNALS.register("session")
def session(ctx: TurnContext) -> SignalScore:
    """Return the accumulated risk before this turn, as far as the message itself is in doubt.

    It tips the balance where the readers are unsure. A message that is harmless by itself is not
    held to what came before it; a bare follow-up is.
    """
    before = ctx.state.accumulated_risk if ctx.turn > 1 else 0.0
    doubt = 1.0
    if ctx.reading is not None:
        doubt = clipped(1.0 + log_odds(ctx.earlier.get("semantic", 0.0)) / _HARMLESS)
    return SignalScore(
        name="session",
        score=before * doubt,
        reason=f"accumulated risk {before:.2f} before this turn",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrajectoryTuning:
    least_step: float
    high: float
    persistent_turns: int
    persistent_weight: float
    spike_weight: float
    spike_calm: float
    swing: float
    swing_turns: int
    oscillating_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a run of risks looks: `name` of what says most, and the numbers behind it."""

    name: str
    score: float
    slope: float
    rise: float
    increases: float


@SIGNALS.register("trajectory")
def trajectory(ctx: TurnContext) -> SignalScore:
    """Return how the risk of the last turns runs: climbing, staying high, jumping or swinging.

    The score is the strongest of the climb (fitted rise times share of increases) and the three
    other shapes.
    """
    shape = shape_of(turn_risks(ctx))
    reason = f"{shape.name}: fitted rise {shape.rise:+.2f}, {shape.increases:.0%} increases"
    parts = {"slope": shape.slope, "rise": shape.rise, "increases": shape.increases}
    return SignalScore(name="trajectory", score=shape.score, reason=reason, parts=parts)


def turn_risks(ctx: TurnContext) -> tuple[float, ...]:
    """Return the risks of the last messages, the current one last, each taken alone."""
    earlier = ctx.state.recent[-(RECENT_TURNS - 1) :]
    return (*(turn.message_risk for turn in earlier), ctx.message_risk)


def shape_of(risks: Sequence[float]) -> Shape:
    """Return the shape of a run of risks in [0,1]; nothing is said of fewer than 3."""
    if len(risks) < _MIN_TURNS:
        return Shape(name="short", score=0.0, slope=0.0, rise=0.0, increases=0.0)
    tuning = _trajectory_tuning()
    slope = least_squares_slope(risks)
    # Over the whole window, so that a slow climb counts like a quick one.
    rise = slope * (len(risks) - 1)
    steps = [b - a for a, b in pairwise(risks)]
    increases = sum(step > tuning.least_step for step in steps) / len(steps)
    score, name = max(
        (clipped(rise * increases), "climbing"),
        (tuning.persistent_weight * _persistent(risks, tuning), "persistent"),
        (tuning.oscillating_weight * _oscillating(steps, tuning), "oscillating"),
        (tuning.spike_weight * _spike(risks, tuning), "spike"),
    )
    return Shape(name=name, score=score, slope=slope, rise=rise, increases=increases)


def least_squares_slope(values: Sequence[float]) -> float:
    """Return the slope per step of the least-squares line; 0 for fewer than two values."""
    n = len(values)
    if n < 2:
        return 0.0
    middle = (n - 1) / 2
    # The sum of the squared distances of 0 to n-1 from their middle.
    spread = n * (n * n - 1) / 12
    return sum((x - middle) * value for x, value in enumerate(values)) / spread


def _persistent(risks: Sequence[float], tuning: _TrajectoryTuning) -> float:
    """Return the level that the last turns never fell below, where it is high."""
    if len(risks) < tuning.persistent_turns:
        return 0.0
    level = min(risks[-tuning.persistent_turns :])
    return level if level >= tuning.high else 0.0


def _spike(risks: Sequence[float], tuning: _TrajectoryTuning) -> float:
    """Return how far the current turn stands out of a calm past."""
    usual = median(risks[:-1])
    return risks[-1] - usual if risks[-1] >= tuning.high and usual <= tuning.spike_calm else 0.0


def _oscillating(steps: Sequence[float], tuning: _TrajectoryTuning) -> float:
    """Return the share of wide swings that reverse the one before, where there are enough."""
    wide = [step for step in steps if abs(step) >= tuning.swing]
    if len(wide) < tuning.swing_turns:
        return 0.0
    turns = sum(a * b < 0 for a, b in pairwise(wide))
    return turns / (len(steps) - 1)


@cache
def _trajectory_tuning() -> _TrajectoryTuning:
    return read_tuning("trajectory", _TrajectoryTuning)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BehaviorTuning:
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
    """Return the chance that a script or a plan drives the conversation, from weak hints."""
    tuning = _behavior_tuning()
    parts = {
        "scripted timing": tuning.timing_weight * _timing(ctx, tuning),
        "automated typing": tuning.typing_weight * _typing(ctx, tuning),
        "directed questions": tuning.directed_weight * _directed(ctx),
        "strategic switching": tuning.switching_weight * _switching(ctx, tuning),
        "history rewritten": tuning.rewritten_weight * float(ctx.history_rewritten),
    }
    named = sorted((name for name, value in parts.items() if value), key=lambda n: -parts[n])
    return SignalScore(
        name="behavior", score=noisy_or(parts.values()), reason=", ".join(named), parts=parts
    )


def _timing(ctx: TurnContext, tuning: _BehaviorTuning) -> float:
    """Return 1 for a perfectly regular or inhumanly fast rhythm, 0 for a human one.

    Gaps that are exactly alike come from a clock that was made up (a replay, a test), not from
    a script: a network always jitters.
    """
    profile = ctx.state.profile
    if profile.gap_count < tuning.min_gaps or profile.gap_mean_s <= 0.0:
        return 0.0
    # Rounding can leave a running sum of squares a little below zero.
    deviation_s = math.sqrt(max(0.0, profile.gap_m2_s) / profile.gap_count)
    if deviation_s < _SAME_CLOCK_S:
        return 0.0
    regular = 1.0 - deviation_s / profile.gap_mean_s / tuning.regular_variation
    hasty = 1.0 - profile.gap_mean_s / tuning.hasty_gap_s
    return clipped(max(regular, hasty))


def _typing(ctx: TurnContext, tuning: _BehaviorTuning) -> float:
    """Return 1 where the client reports a message typed faster than hands can, or pasted."""
    chars = len(ctx.text)
    if chars < tuning.min_typed_chars:
        return 0.0
    hints = ctx.client
    # Multiplied and not divided: the time is the client's word, and may be next to nothing.
    is_fast = hints.typing_ms is not None and (
        chars * 1000.0 > tuning.typed_chars_per_s * hints.typing_ms
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


def _switching(ctx: TurnContext, tuning: _BehaviorTuning) -> float:
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
def _behavior_tuning() -> _BehaviorTuning:
    return read_tuning("behavior", _BehaviorTuning)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResponseTuning:
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
    # Each answer speaks once, in the turn that follows it.
    if not answered or answered[-1][0] is not ctx.state.recent[-1]:
        return SignalScore(name="response", score=0.0)
    last, _ = answered[-1]
    kind = last.reply.kind if last.reply else ReplyKind.NONE
    position = _POSITIONS[kind]
    parts = {"position": position, "shift": position - (_position(answered[0][0]) or 0.0)}
    refused = _refused_before(answered) if kind in _GAVE_IN else None
    if refused is not None:
        tuning = _response_tuning()
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
    tuning = _response_tuning()
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
def _response_tuning() -> _ResponseTuning:
    return read_tuning("response", _ResponseTuning)
