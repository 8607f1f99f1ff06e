"""Signal `context`: what the embedded model says of the conversation as a whole."""

from __future__ import annotations

from promptguard.protocols import SignalScore, TurnContext
from promptguard.signals import SIGNALS
from promptguard.signals.score import scored


@SIGNALS.register("context")
def context(ctx: TurnContext) -> SignalScore:
    """Return the probability that an attack is in progress; 0 where no model is in use."""
    reading = ctx.context
    if reading is None:
        return scored("context", 0.0)
    cut = ", older turns cut" if reading.is_truncated else ""
    reason = f"attack in progress {reading.attack:.2f} over {reading.turns} turns{cut}"
    return scored("context", reading.attack, reason, {"turns": float(reading.turns)})
