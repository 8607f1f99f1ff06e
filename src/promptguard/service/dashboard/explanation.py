"""Why a session stands where it stands, in words and bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from promptguard.service.dashboard.charts import Bar, evidence_bars
from promptguard.service.dashboard.markup import (
    action_chip,
    action_word,
    esc,
    mode_chip,
    nats_text,
    notice,
    risk_text,
    turns_in_words,
)
from promptguard.state import Mode
from promptguard.turns.explain import PASSING, Alone, Explanation
from promptguard.turns.verdict import TurnVerdict

_MOST_TURNS = 12
T = TypeVar("T")


def explanation_html(found: Explanation) -> str:
    """Return the counterfactual, the message by itself, and the contributions that add up."""
    given = found.attribution
    signals = [Bar(name=name, nats=nats) for name, nats in _strongest(given.by_signal)]
    turns = [Bar(name=_turn_name(turn), nats=nats) for turn, nats in _strongest(given.by_turn)]
    partial = notice("Only the last turns of this long session were replayed.")
    return (
        f'<p class="counterfactual">{counterfactual(found)}</p>'
        f'<p class="alone">{alone_html(found.verdict.turn, found.alone)}</p>'
        f"{partial if found.is_partial else ''}"
        f"<h3>By signal</h3>{evidence_bars(signals, title='Evidence by signal in nats', width=350)}"
        f"<h3>By turn</h3>{evidence_bars(turns, title='Evidence by turn in nats', width=350)}"
        f'<p class="sum num">prior {nats_text(given.prior)} + evidence {nats_text(given.nats)} '
        f"= log-odds {nats_text(given.prior + given.nats)} → risk {risk_text(given.risk)}</p>"
    )


def counterfactual(found: Explanation) -> str:
    """Say in one sentence what the last verdict hangs on."""
    turn = found.verdict.turn
    if found.verdict.action in PASSING:
        done = action_word(found.verdict.action)
        return f"Turn {turn} was <b>{done}</b>; nothing stands in its way."
    if found.without is not None:
        return (
            f"Turn {turn} would have been <b>allowed without {turns_in_words(found.without)}</b>."
        )
    if found.alone.action not in PASSING:
        return f"Turn {turn} is refused <b>for what it says itself</b>, whatever came before."
    return f"Turn {turn} stays refused <b>whichever earlier turns are left out</b>."


def alone_html(turn: int, alone: Alone) -> str:
    """Say what the last message would have got had it been the only one."""
    return (
        f"Sent alone, message {turn} would have got {mode_chip(alone.mode)} "
        f'<b class="num">{risk_text(alone.risk)}</b> and been {action_word(alone.action)}.'
    )


def replay_html(pairs: Sequence[tuple[TurnVerdict, TurnVerdict]], name: str) -> str:
    """Say which turns another configuration judges otherwise."""
    changed = [(ours, theirs) for ours, theirs in pairs if _differs(ours, theirs)]
    if not changed:
        return notice(f"Under “{name}” every turn gets the same mode and the same action.")
    rows = "".join(
        f"<tr><th scope='row'>{ours.turn}</th><td>{mode_chip(ours.mode)} {action_chip(ours.action)}"
        f"</td><td>{mode_chip(theirs.mode)} {action_chip(theirs.action)}</td>"
        f'<td class="num">{theirs.risk - ours.risk:+.2f}</td></tr>'
        for ours, theirs in changed
    )
    return (
        f"<p>{len(changed)} of {len(pairs)} turns differ under “{esc(name)}” (dashed line).</p>"
        '<table class="plain"><thead><tr><th scope="col">Turn</th><th scope="col">Now</th>'
        f'<th scope="col">{esc(name)}</th><th scope="col">Δ risk</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def reached_html(entered: Sequence[tuple[int, Mode]]) -> str:
    """List the turn at which each mode was first reached."""
    if not entered:
        return '<p class="quiet">No mode above SAFE was reached.</p>'
    by_turn: dict[int, list[Mode]] = {}
    for turn, mode in entered:
        by_turn.setdefault(turn, []).append(mode)
    items = "".join(
        f"<li>turn {turn} {' '.join(mode_chip(mode) for mode in modes)}</li>"
        for turn, modes in by_turn.items()
    )
    return f'<ul class="reached">{items}</ul>'


def _differs(ours: TurnVerdict, theirs: TurnVerdict) -> bool:
    return (ours.mode, ours.action) != (theirs.mode, theirs.action)


def _strongest(shares: Sequence[tuple[T, float]]) -> list[tuple[T, float]]:
    kept = sorted(shares, key=lambda share: -abs(share[1]))[:_MOST_TURNS]
    return sorted(kept, key=lambda share: -share[1])


def _turn_name(turn: int) -> str:
    return "earlier turns" if turn < 0 else f"turn {turn}"
