"""Names that others know a finding by: OWASP's list for LLM applications and MITRE ATLAS."""

from __future__ import annotations

from promptguard.model.reading import MessageReading
from promptguard.protocols import SignalScore, TurnContext

_LIKELY = 0.5
_OVERRIDE = {"FIL-05", "FIL-05a", "FIL-05b"}


def tags_for(ctx: TurnContext, scores: tuple[SignalScore, ...]) -> tuple[str, ...]:
    """Return the tags that fit what was found in a turn, in a fixed order."""
    by_name = {score.name: score.score for score in scores}
    found: list[str] = []
    if _is(ctx.reading, "manipulative") or _OVERRIDE & set(ctx.fil.violated):
        found += ["LLM01", "AML.T0051.000", "AML.T0054"]
    if any(_is(reading, "manipulative") for reading in ctx.untrusted):
        found += ["LLM01", "AML.T0051.001"]
    if _is(ctx.reading, "extractive"):
        found += ["LLM07", "LLM02", "AML.T0056", "AML.T0057"]
    if ctx.views.decoded or ctx.views.disguises:
        found.append("AML.T0068")
    if ctx.history_rewritten:
        found.append("AML.T0092")
    if by_name.get("information_gathering", 0.0) >= _LIKELY:
        found.append("AML.T0069")
    if by_name.get("context", 0.0) >= _LIKELY and ctx.turn > 1:
        found.append("AML.T0054")
    return tuple(dict.fromkeys(found))


def _is(reading: MessageReading | None, kind: str) -> bool:
    return reading is not None and float(getattr(reading, kind)) >= _LIKELY
