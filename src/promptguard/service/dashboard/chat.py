"""The lines of a chat: who said what, and the verdict in one line."""

from __future__ import annotations

from promptguard.controller import TurnResult
from promptguard.service.dashboard.markup import action_chip, esc, mode_chip, notice, risk_text

_NAMED_SIGNALS = 2


def bubble_html(kind: str, who: str, text: str, tools: tuple[str, ...] = ()) -> str:
    """Return a message, with the tool results that came with it."""
    brought = "".join(bubble_html("tool", "Tool result (untrusted)", tool) for tool in tools)
    return (
        f'<div class="bubble {kind}"><span class="who">{who}</span><p dir="auto">{esc(text)}</p>'
        f"</div>{brought}"
    )


def verdict_line(result: TurnResult) -> str:
    """Return mode, risk, action and the strongest signals of a turn."""
    verdict = result.verdict
    if verdict is None:
        return notice(f"Not judged: {result.fault}", kind="bad")
    top = verdict.top_evidence[:_NAMED_SIGNALS]
    why = ", ".join(f"{esc(e.signal.replace('_', ' '))} {e.nats:+.1f}" for e in top)
    return (
        f'{mode_chip(verdict.mode)} <b class="num">{risk_text(verdict.risk)}</b> '
        f'{action_chip(result.action)} <span class="quiet">{why}</span>'
    )
