"""Names that others know a finding by: OWASP's list for LLM applications and MITRE ATLAS.

Tags follow from what was found and only where something was: an innocent turn has none. At most
three, the most telling first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from promptguard.protocols import TurnContext
from promptguard.verdict import Action, ContentFinding, SignalScore

MAX_TAGS = 3
_LIKELY = 0.5
_OVERRIDE = {"FIL-05", "FIL-05a", "FIL-05b"}

INJECTION, LEAKAGE = "LLM01", "LLM07"
DIRECT, INDIRECT = "AML.T0051.000", "AML.T0051.001"
JAILBREAK, EXTRACTION, OBFUSCATION = "AML.T0054", "AML.T0056", "AML.T0068"
REWRITTEN_HISTORY = "AML.T0092"


def tags_for(
    ctx: TurnContext, scores: Sequence[SignalScore], findings: Sequence[ContentFinding]
) -> tuple[str, ...]:
    """Return the tags that fit what was found in a turn."""
    return tuple(dict.fromkeys(_found(ctx, scores, findings)))[:MAX_TAGS]


def _found(
    ctx: TurnContext, scores: Sequence[SignalScore], findings: Sequence[ContentFinding]
) -> Iterator[str]:
    by_name = {score.name: score.score for score in scores}
    is_risky = max(ctx.message_risk, by_name.get("context", 0.0)) >= _LIKELY
    if any(finding.action is not Action.ALLOW for finding in findings):
        yield from (INJECTION, INDIRECT)
    if ctx.history_rewritten:
        yield REWRITTEN_HISTORY
    if not is_risky and not ctx.fil.violated:
        return
    kind = _kind(ctx)
    if kind == "extractive":
        yield from (LEAKAGE, EXTRACTION)
    elif kind == "manipulative":
        yield from (INJECTION, DIRECT)
    elif ctx.turn > 1 and by_name.get("context", 0.0) >= _LIKELY:
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
