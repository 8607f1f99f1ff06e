"""What calls to language models cost: calls, tokens and money, with what is not known."""

from __future__ import annotations

from dataclasses import dataclass, fields

from promptguard.counts import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Calls made, failed and repeated ones included, and what they cost; usages add up.

    `cost_usd` covers the calls whose price is known; the other `unpriced_calls` may have cost
    anything, so a sum with such calls is a lower bound.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unpriced_calls: int = 0

    @property
    def is_cost_known(self) -> bool:
        """Whether `cost_usd` covers every call."""
        return self.unpriced_calls == 0

    def __add__(self, other: Usage) -> Usage:
        names = (field.name for field in fields(self))
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in names})


def cost_text(usage: Usage) -> str:
    """Return the cost for a reader: `$0.0123`, and how many calls it does not cover."""
    if usage.is_cost_known:
        return f"${usage.cost_usd:.4f}"
    # A sum of nothing but unknown costs would read as free.
    if usage.unpriced_calls == usage.calls:
        return "cost unknown"
    return f"${usage.cost_usd:.4f} and {counted(usage.unpriced_calls, 'call')} of unknown cost"
