"""Which words of a message mattered: what its telling concepts are written in."""

from __future__ import annotations

from promptguard.protocols import TurnContext
from promptguard.text.places import original_spans
from promptguard.verdict import Span

MAX_SPANS = 12
_TELLING = ("hazard.", "intent.", "evasion.", "protected.")
_WORTH_SHOWING = 0.2


def spans_of(ctx: TurnContext) -> tuple[Span, ...]:
    """Return the characters of the original text that name something telling, in order."""
    if ctx.message_risk < _WORTH_SHOWING and not ctx.fil.violated:
        return ()
    named = [
        (place, name)
        for name, places in ctx.concepts.items()
        if name.startswith(_TELLING)
        for place in places
    ]
    named.sort()
    places = original_spans(ctx.text, [place for place, _ in named[:MAX_SPANS]])
    return tuple(
        Span(start=start, end=end, label=name)
        for (start, end), (_, name) in zip(places, named, strict=False)
    )
