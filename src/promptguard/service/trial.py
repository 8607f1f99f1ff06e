"""A judge tried out before turns depend on it."""

from __future__ import annotations

from promptguard.state import SessionState
from promptguard.turns.judge import TurnJudge
from promptguard.turns.verdict import TurnInput


def try_out(judge: TurnJudge) -> None:
    """Judge one harmless turn; raises what would go wrong, and loads what is loaded on use."""
    judge.judge(SessionState(session_id="trial"), TurnInput(text="Good morning."), now=0.0)
