"""What a verdict names: the tags others know a finding by, and the words that mattered.

Tags are those of OWASP's list for LLM applications and of MITRE ATLAS. They follow from what was
found and only where something was: an innocent turn has none. At most three, the most telling
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from promptguard.protocols import TurnContext
from promptguard.text.places import original_spans
from promptguard.verdict import Action, ContentFinding, Span

MAX_TAGS = 3
MAX_SPANS = 12
_TELLING = ("hazard.", "intent.", "evasion.", "protected.")
_WORTH_SHOWING = 0.2
_LIKELY = 0.5
_OVERRIDE = {"FIL-05", "FIL-05a", "FIL-05b"}

INJECTION, LEAKAGE = "LLM01", "LLM07"
DIRECT, INDIRECT = "AML.T0051.000", "AML.T0051.001"
JAILBREAK, EXTRACTION, OBFUSCATION = "AML.T0054", "AML.T0056", "AML.T0068"
REWRITTEN_HISTORY = "AML.T0092"


def labels_of(
    ctx: TurnContext, own_risk: float, findings: Sequence[ContentFinding]
) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    """Return the tags and the telling words of a turn; `own_risk` is that of the user's words."""
    return tags_for(ctx, own_risk, findings), spans_of(ctx)


def tags_for(
    ctx: TurnContext, own_risk: float, findings: Sequence[ContentFinding]
) -> tuple[str, ...]:
    """Return the tags that fit what was found in a turn."""
    return tuple(dict.fromkeys(_found(ctx, own_risk, findings)))[:MAX_TAGS]


def _found(ctx: TurnContext, own_risk: float, findings: Sequence[ContentFinding]) -> Iterator[str]:
    if any(finding.action is not Action.ALLOW for finding in findings):
        yield from (INJECTION, INDIRECT)
    if ctx.history_rewritten:
        yield REWRITTEN_HISTORY
    if own_risk < _LIKELY:
        return
    kind = _kind(ctx)
    if kind == "extractive":
        yield from (LEAKAGE, EXTRACTION)
    elif kind == "manipulative":
        yield from (INJECTION, DIRECT)
    else:  # harm asked for, openly or step by step: what jailbreaks are for
        yield JAILBREAK
    if ctx.views.decoded or ctx.views.disguises:
        yield OBFUSCATION
    if kind == "manipulative":
        yield JAILBREAK


def _kind(ctx: TurnContext) -> str:
    """Return what the message does: extractive, manipulative, or asks for harm."""
    if _OVERRIDE & set(ctx.fil.violated):
        return "manipulative"
    if ctx.reading is None:
        return "harmful"
    kinds = {
        name: float(getattr(ctx.reading, name))
        for name in ("extractive", "manipulative", "harmful")
    }
    best = max(kinds, key=lambda name: kinds[name])
    return best if kinds[best] >= _LIKELY else "harmful"


def spans_of(ctx: TurnContext) -> tuple[Span, ...]:
    """Return the characters of the original text that name something telling, in order."""
    if ctx.message_risk < _WORTH_SHOWING and not ctx.fil.violated:
        return ()
    return telling_spans(ctx.text, ctx.concepts)


def telling_spans(text: str, concepts: Mapping[str, Sequence[tuple[int, int]]]) -> tuple[Span, ...]:
    """Return the characters of a text that name telling concepts, given by place in its folded
    form."""
    named = [
        (place, name)
        for name, places in concepts.items()
        if name.startswith(_TELLING)
        for place in places
    ]
    named.sort()
    places = original_spans(text, [place for place, _ in named[:MAX_SPANS]])
    return tuple(
        Span(start=start, end=end, label=name)
        for (start, end), (_, name) in zip(places, named, strict=False)
    )
