"""How a running conversation stands: its risk, its trajectory, and what speaks for it."""

from __future__ import annotations

from collections.abc import Sequence

from promptguard.risk.explain import attribute
from promptguard.risk.weights import Weights
from promptguard.service.dashboard.charts import Bar, Point, evidence_bars, trajectory
from promptguard.service.dashboard.markup import mode_chip, risk_text
from promptguard.state import SessionState
from promptguard.turns.verdict import TurnVerdict


def standing_html(
    state: SessionState,
    verdict: TurnVerdict | None,
    weights: Weights,
    prior: float,
    points: Sequence[Point],
) -> str:
    """Return risk and mode, the trajectory so far, and the evidence of the turn and in all."""
    added = (
        []
        if verdict is None
        else [
            Bar(name=e.signal, nats=e.nats, reason=e.reason)
            for e in sorted(verdict.evidence, key=lambda e: -e.nats)
        ]
    )
    whole = [
        Bar(name=name, nats=nats)
        for name, nats in sorted(attribute(state.ledger, prior).by_signal, key=lambda s: -s[1])
    ]
    return (
        f'<p class="facts">{mode_chip(state.mode)}<b class="num big">'
        f"{risk_text(state.accumulated_risk)}</b><span>after {state.turn_count} turns</span></p>"
        f"{trajectory(points, weights.modes.starts(), state.entered, width=520)}"
        "<h3>Added by this turn</h3>"
        f"{evidence_bars(added, title='Evidence of this turn in nats', width=420)}"
        f"<h3>In all</h3>{evidence_bars(whole, title='Evidence in all in nats', width=420)}"
    )
