"""Signal `keywords`: words of the lexicon, weighed by how rare they are in innocent text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS
from promptguard.signals.lexicon import Term, shipped_lexicon
from promptguard.signals.score import scored
from promptguard.signals.tuning import read_tuning
from promptguard.text.normalize import fold
from promptguard.verdict import SignalScore

_NAMED_TERMS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tuning:
    scale: float


@SIGNALS.register("keywords")
def keywords(ctx: TurnContext) -> SignalScore:
    """Return 1 - exp(-Σ tf·idf·severity / scale) of the riskiest view of the message."""
    best, terms, where = _sum(ctx.views.folded)
    for view in ctx.views.decoded:
        total, found, _ = _sum(fold(view.text))
        if total > best:
            best, terms, where = total, found, f" (decoded {view.method})"
    return scored(
        "keywords", 1.0 - math.exp(-best / _tuning().scale), _names(terms) + where, {"sum": best}
    )


def _sum(folded: str) -> tuple[float, tuple[Term, ...], str]:
    counts = Counter(hit.term for hit in shipped_lexicon().hits(folded))
    total = sum((1.0 + math.log(times)) * term.weight for term, times in counts.items())
    ordered = sorted(counts, key=lambda term: (-term.weight, term.text))
    return total, tuple(ordered), ""


def _names(terms: Iterable[Term]) -> str:
    named = [f"{term.family}: {term.text}" for term in terms]
    more = f" and {len(named) - _NAMED_TERMS} more" if len(named) > _NAMED_TERMS else ""
    return "; ".join(named[:_NAMED_TERMS]) + more


@cache
def _tuning() -> _Tuning:
    return read_tuning("keywords", _Tuning)
