"""Signal `coherence`: does a risky turn jump away from what was being talked about?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS, read_tuning
from promptguard.signals.subject import mean_vector, similarity, vector_of
from promptguard.state import TopicSummary
from promptguard.vector import Vector
from promptguard.verdict import SignalScore


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tuning:
    window: int
    risky: float
    return_cosine: float


@SIGNALS.register("coherence")
def coherence(ctx: TurnContext) -> SignalScore:
    """Return 1 - cosine(current, mean of the last five) for a risky turn, else 0.

    A turn that goes back to an earlier segment is no pivot: its distance is measured from there.
    """
    tuning = _tuning()
    recent = ctx.state.recent[-tuning.window :]
    mean = mean_vector([then.vector for then in ctx.subjects.past[-tuning.window :]])
    vector = ctx.subjects.now.vector
    if not mean.size or mean.size != vector.size:
        return SignalScore(name="coherence", score=0.0)
    distance = 1.0 - similarity(vector, mean)
    if ctx.message_risk < tuning.risky:
        return SignalScore(name="coherence", score=0.0, parts={"distance": distance})
    segment, closeness = _nearest_segment(ctx, recent[0].turn, vector)
    if segment is not None and closeness >= max(tuning.return_cosine, 1.0 - distance):
        return SignalScore(
            name="coherence",
            score=1.0 - closeness,
            reason=f"risky return to turns {segment.first_turn}-{segment.last_turn} "
            f"(peak risk {segment.peak_risk:.2f})",
            parts={"distance": distance, "return_cosine": closeness},
        )
    reason = f"risky pivot, distance {distance:.2f} from the last {len(recent)} turns"
    return SignalScore(
        name="coherence", score=distance, reason=reason, parts={"distance": distance}
    )


def _nearest_segment(
    ctx: TurnContext, before_turn: int, vector: Vector
) -> tuple[TopicSummary | None, float]:
    """Return the closest segment that ended before the window, and its cosine."""
    nearest: TopicSummary | None = None
    closest = 0.0
    for segment in ctx.state.segments:
        closeness = similarity(vector, vector_of(segment.centroid))
        if segment.last_turn < before_turn and closeness > closest:
            nearest, closest = segment, closeness
    return nearest, closest


@cache
def _tuning() -> _Tuning:
    return read_tuning("coherence", _Tuning)
