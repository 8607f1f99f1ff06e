"""Signal `session`: what the session has shown before this turn, for a turn that is in doubt."""

from __future__ import annotations

from promptguard.model.network import log_odds
from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS, clipped
from promptguard.verdict import SignalScore

# From these log-odds of the message alone on, the past counts a little, and wholly from even on.
_HARMLESS = 3.0


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
