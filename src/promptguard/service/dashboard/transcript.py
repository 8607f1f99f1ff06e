"""A turn as the pages show it: what was said, what was hidden in it, and how it was judged."""

from __future__ import annotations

from collections.abc import Sequence

from promptguard.service.dashboard.cards import Card, Judged
from promptguard.service.dashboard.charts import Bar, evidence_bars
from promptguard.service.dashboard.markup import (
    action_chip,
    esc,
    mode_chip,
    moment,
    nats_text,
    notice,
    risk_text,
)
from promptguard.text.read import read_text
from promptguard.text.views import TextViews

_LONGEST = 6000
_TAG_NAMES = {
    "LLM01": "OWASP LLM01 prompt injection",
    "LLM02": "OWASP LLM02 sensitive information disclosure",
    "LLM07": "OWASP LLM07 system prompt leakage",
    "AML.T0051.000": "MITRE ATLAS direct prompt injection",
    "AML.T0051.001": "MITRE ATLAS indirect prompt injection",
    "AML.T0054": "MITRE ATLAS jailbreak",
    "AML.T0056": "MITRE ATLAS extract system prompt",
    "AML.T0057": "MITRE ATLAS data leakage",
    "AML.T0068": "MITRE ATLAS prompt obfuscation",
    "AML.T0069": "MITRE ATLAS discover system information",
    "AML.T0092": "MITRE ATLAS manipulated chat history",
}


def turn_html(card: Card) -> str:
    """Return a turn with its verdict beside it."""
    said = "".join(
        (
            _user(card),
            *(_bubble("tool", "Tool result (untrusted)", text) for text in card.tools),
            *(_bubble("assistant", "Assistant", text) for text in card.replies),
        )
    )
    verdict = "" if card.judged is None else verdict_html(card.judged)
    return (
        f'<div class="turn-said"><h3 class="turn-no">Turn {card.turn} '
        f'<span class="quiet">{moment(card.timestamp)}</span></h3>{said}</div>'
        f'<div class="turn-verdict">{verdict}</div>'
    )


def verdict_html(judged: Judged) -> str:
    """Return risk, mode, action, evidence and tags of one verdict."""
    if judged.fault:
        return f"{action_chip(judged.action)}{notice('Not judged: ' + judged.fault, kind='bad')}"
    added = sum(bar.nats for bar in judged.evidence)
    hard = '<span class="tagged hard">hard rule</span>' if judged.is_hard else ""
    bars = sorted(judged.evidence, key=lambda bar: -bar.nats)
    reasons = [bar for bar in bars if bar.reason and abs(bar.nats) >= 0.3]
    return (
        f'<div class="verdict-head">{mode_chip(judged.mode)}'
        f'<b class="num">{risk_text(judged.risk)}</b>{action_chip(judged.action)}{hard}</div>'
        f'<p class="quiet">This message alone {risk_text(judged.message_risk)} · '
        f"evidence added {nats_text(added)} nats</p>"
        f"{evidence_bars(bars, title='Evidence in nats')}{_reasons(reasons)}{_tags(judged.tags)}"
    )


def _reasons(bars: Sequence[Bar]) -> str:
    if not bars:
        return ""
    items = "".join(
        f"<li><b>{esc(bar.name.replace('_', ' '))}</b> {esc(bar.reason)}</li>" for bar in bars
    )
    return f'<ul class="reasons">{items}</ul>'


def _tags(tags: tuple[str, ...]) -> str:
    if not tags:
        return ""
    marks = "".join(
        f'<span class="tagged" title="{esc(_TAG_NAMES.get(tag, tag))}">{esc(tag)}</span>'
        for tag in tags
    )
    return f'<div class="tags">{marks}</div>'


def _user(card: Card) -> str:
    if card.user is None:
        return _bubble("user", "User", None)
    if not card.user:
        return ""
    return _bubble("user", "User", card.user) + _hidden(read_text(card.user))


def _hidden(views: TextViews) -> str:
    rows = []
    if views.disguises:
        undone = ", ".join(esc(name) for name in views.disguises)
        rows.append(f"<dt>{undone} undone</dt><dd>{esc(_cut(views.plain))}</dd>")
    rows += [
        f"<dt>{esc(view.method)} decoded</dt><dd>{esc(_cut(view.text))}</dd>"
        for view in views.decoded
    ]
    if not rows:
        return ""
    return f'<dl class="decoded" aria-label="What the text hides">{"".join(rows)}</dl>'


def _bubble(kind: str, who: str, text: str | None) -> str:
    said = '<em class="quiet">Text is not kept.</em>' if text is None else esc(_cut(text))
    return (
        f'<div class="bubble {kind}"><span class="who">{who}</span><p dir="auto">{said}</p></div>'
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
