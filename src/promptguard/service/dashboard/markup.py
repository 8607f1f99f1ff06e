"""Small pieces of HTML that every page uses. All text that comes from outside is escaped here."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape

from promptguard.state import Action, Mode

_ACTIONS = {
    Action.ALLOW: "allowed",
    Action.ANNOTATE: "annotated",
    Action.STEER: "steered",
    Action.REVIEW: "sent to review",
    Action.BLOCK: "blocked",
}


def esc(text: object) -> str:
    """Return `text` fit for element content and for attribute values in quotes."""
    return escape(str(text), quote=True)


def mode_chip(mode: Mode) -> str:
    """Return the coloured name of a mode; the name is written out, colour only supports it."""
    return f'<span class="chip m{int(mode)}"><i aria-hidden="true"></i>{mode.name}</span>'


def action_chip(action: Action) -> str:
    """Return what was done about a turn."""
    return f'<span class="tagged act-{action.value}">{_ACTIONS[action]}</span>'


def action_word(action: Action) -> str:
    """Return an action as it stands in a sentence."""
    return _ACTIONS[action]


def moment(timestamp: float) -> str:
    """Return a point in time; the page's script keeps its wording relative to now."""
    exact = datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="seconds")
    shown = exact.replace("T", " ").removesuffix("+00:00") + " UTC"
    return f'<time datetime="{exact}" title="{shown}" data-ago>{shown}</time>'


def risk_text(risk: float) -> str:
    """Return a risk with two digits, never rounded up to certainty."""
    return "&gt;0.99" if 0.995 <= risk < 1.0 else f"{risk:.2f}"


def nats_text(nats: float) -> str:
    """Return evidence with its sign."""
    shown = "0.00" if abs(nats) < 0.005 else f"{nats:+.2f}"
    return shown.replace("-", "\N{MINUS SIGN}")


def turns_in_words(turns: tuple[int, ...]) -> str:
    """Return turn numbers as a sentence names them: `turn 3`, `turns 3 and 5`."""
    if len(turns) == 1:
        return f"turn {turns[0]}"
    *most, last = (str(turn) for turn in turns)
    return f"turns {', '.join(most)} and {last}"


def notice(text: str, *, kind: str = "info") -> str:
    """Return a boxed remark."""
    return f'<p class="notice {kind}">{esc(text)}</p>'
