"""HTML from the Jinja templates in data/dashboard/templates; they escape all they are given."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from promptguard.conversation import without_lone_surrogates
from promptguard.counts import counted
from promptguard.verdict import Action, Mode, Span

_ROOT = Path(str(files("promptguard") / "data" / "dashboard"))
ASSETS = _ROOT / "assets"
_MAX_SHOWN_CHARS = 6000
_ACTIONS = {
    Action.ALLOW: "allowed",
    Action.ANNOTATE: "annotated",
    Action.STEER: "steered",
    Action.REVIEW: "sent to review",
    Action.STRIP: "stripped",
    Action.BLOCK: "blocked",
}


def render(template: str, macro: str, *values: object) -> Markup:
    """Return one macro of a template as HTML; text among `values` is escaped."""
    module = _environment().get_template(f"{template}.html").module
    html: Markup = getattr(module, macro)(*values)
    # Half a surrogate pair, which a stored text may hold, can be sent to no browser.
    return Markup(without_lone_surrogates(html))  # noqa: S704  escaped by the template


def notice(text: str, kind: str = "info") -> Markup:
    """Return a boxed remark; `kind` is info or bad."""
    return render("parts", "notice", text, kind)


def action_word(action: Action) -> str:
    """Return an action as a sentence names it."""
    return _ACTIONS[action]


def risk_text(risk: float) -> str:
    """Return a risk with two digits, never rounded up to certainty."""
    return ">0.99" if 0.995 <= risk < 1.0 else f"{risk:.2f}"


def nats_text(nats: float) -> str:
    """Return evidence with its sign, and never a minus zero."""
    shown = "0.00" if abs(nats) < 0.005 else f"{nats:+.2f}"
    return shown.replace("-", "\N{MINUS SIGN}")


def marked(text: str, spans: Sequence[Span] = (), longest: int = _MAX_SHOWN_CHARS) -> Markup:
    """Return text as HTML with the words of `spans` marked; spans that overlap are joined."""
    shown, at = [], 0
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        # A span may begin inside the one before it, or behind what is shown.
        start, end = max(at, span.start), min(span.end, longest, len(text))
        if start < end:
            label = span.label.replace("_", " ").replace(".", ": ", 1)
            mark = Markup('<mark title="{}">{}</mark>').format(label, text[start:end])
            shown += [Markup.escape(text[at:start]), mark]
            at = end
    shown.append(Markup.escape(_cut(text[at:], max(0, longest - at))))
    return Markup().join(shown)


def turns_in_words(turns: Sequence[int]) -> str:
    """Return turn numbers as a sentence names them: `turn 3`, `turns 3 and 5`."""
    *most, last = map(str, turns)
    return f"turns {', '.join(most)} and {last}" if most else f"turn {last}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_ROOT / "templates"),
        # What is shown was written by attackers; only our own markup is markup.
        autoescape=True,
        # A misspelt name is an error, not an empty place on a page.
        undefined=StrictUndefined,
        # The files do not change while the process runs, and looking costs time.
        auto_reload=False,
    )
    environment.filters |= {
        "action_word": action_word,
        "counted": counted,
        "cut": _cut,
        "iso_time": lambda at: datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"),
        "marked": marked,
        "mode_number": lambda name: int(Mode[name]),
        "nats": nats_text,
        "risk": risk_text,
        "spaced": lambda name: name.replace("_", " "),
        "turns": turns_in_words,
    }
    return environment


def _cut(text: str, longest: int = _MAX_SHOWN_CHARS) -> str:
    return text if len(text) <= longest else text[:longest] + " …"
