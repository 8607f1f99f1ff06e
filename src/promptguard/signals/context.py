"""Signal `context`: what the readers say of this turn in the light of all before it."""

from __future__ import annotations

from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS
from promptguard.verdict import SignalScore


@SIGNALS.register("context")
def context(ctx: TurnContext) -> SignalScore:
    """Return the probability that answering this turn serves an attack.

    0 where no model is in use.
    """
    reading = ctx.context
    if reading is None:
        return SignalScore(name="context", score=0.0)
    cut = ", older turns cut" if reading.is_truncated else ""
    reason = f"serves an attack {reading.turn:.2f} over {reading.turns} turns{cut}"
    parts = {"turns": float(reading.turns), "session": reading.session}
    return SignalScore(name="context", score=reading.turn, reason=reason, parts=parts)
