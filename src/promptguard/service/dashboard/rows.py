"""A session as one row of the table."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from promptguard.protocols import SessionKey
from promptguard.service.dashboard.charts import sparkline
from promptguard.service.dashboard.markup import esc, mode_chip, moment, risk_text
from promptguard.state import Mode, SessionState

_LONGEST = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is shown of a session, and `words` in which a search may find it."""

    key: SessionKey
    mode: Mode
    risk: float
    risks: tuple[float, ...]
    turns: int
    blocked: int
    rewrites: int
    updated: float
    last: str
    words: str


def row_of(state: SessionState) -> Row:
    """Return the row of a session."""
    said = [record.excerpt for record in state.recent if record.excerpt]
    return Row(
        key=SessionKey(session_id=state.session_id, tenant=state.tenant),
        mode=state.mode,
        risk=state.accumulated_risk,
        risks=tuple(record.risk for record in state.recent),
        turns=state.turn_count,
        blocked=state.profile.blocked,
        rewrites=state.history_rewrites,
        updated=state.updated,
        last=said[-1] if said else "",
        words="\n".join((state.session_id, *said)).casefold(),
    )


def row_html(row: Row, base: str) -> str:
    """Return the cells of a row."""
    last = row.last if len(row.last) <= _LONGEST else row.last[:_LONGEST] + "…"
    rewritten = (
        '<span class="tagged hard" title="The client changed or dropped earlier messages">'
        "history rewritten</span>"
        if row.rewrites
        else ""
    )
    blocked = (
        f'<b class="num blocked">{row.blocked}</b>'
        if row.blocked
        else '<span class="quiet">0</span>'
    )
    return (
        f"<td>{mode_chip(row.mode)}</td>"
        f'<th scope="row"><a href="{session_url(base, row.key)}">{esc(row.key.session_id)}</a>'
        f'{rewritten}<span class="last" dir="auto">{esc(last)}</span></th>'
        f'<td class="risk-cell"><span class="num">{risk_text(row.risk)}</span>'
        f"{sparkline(row.risks, row.mode)}</td>"
        f'<td class="num">{row.turns}</td><td class="num">{blocked}</td>'
        f'<td class="when">{moment(row.updated)}</td>'
    )


def session_url(base: str, key: SessionKey) -> str:
    """Return the address of a session's page."""
    return f"{esc(base)}/session?id={quote(key.session_id, safe='')}"
