"""Signal `fil`: the Frozen Instinct Layer's word."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from promptguard.protocols import FilReading, TurnContext
from promptguard.signals import SIGNALS, read_tuning
from promptguard.verdict import SignalScore


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tuning:
    escalation_floor: float


@SIGNALS.register("fil")
def fil(ctx: TurnContext) -> SignalScore:
    """Return the stored harm score; 1 for a hard violation, a floor where harm escalates.

    A message that itself shows nothing scores 0, whatever came before: the past is judged by
    `continuation`, or a harmless turn could never follow a harmful one.
    """
    reading = ctx.fil
    if not (reading.violated or reading.features):
        return SignalScore(name="fil", score=0.0)
    score = 1.0 if reading.is_hard else reading.harm_score
    if reading.escalation and reading.harm_score > 0.0:
        score = max(score, _tuning().escalation_floor)
    parts = {"harm": reading.harm_score, "counterfactual": reading.counterfactual_severity}
    return SignalScore(name="fil", score=score, reason=_reason(reading), parts=parts)


def _reason(reading: FilReading) -> str:
    violates = f"violates {', '.join(reading.violated)}" if reading.violated else ""
    found = (
        "hard violation" if reading.is_hard else "",
        "" if violates in reading.reason else violates,
        f"escalation: {', '.join(reading.escalation)}" if reading.escalation else "",
        reading.reason or ", ".join(reading.features),
    )
    return "; ".join(part for part in found if part) or "rules matched"


@cache
def _tuning() -> _Tuning:
    return read_tuning("fil", _Tuning)
