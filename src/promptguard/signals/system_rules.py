"""Signal `system_rules`: does the turn ask about what the application's prompt protects?"""

from __future__ import annotations

from functools import lru_cache

from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS
from promptguard.signals.subject import subject_terms
from promptguard.text.vocabulary import key_terms
from promptguard.verdict import SignalScore

# So many terms in common are as good as all of a short question's.
_ENOUGH = 3


@SIGNALS.register("system_rules")
def system_rules(ctx: TurnContext) -> SignalScore:
    """Return how much of the turn's subject is named in the rules of the system prompt.

    The readers see the system prompt too; this holds the part that words alone can tell.
    """
    rules = _rule_terms(ctx.rules)
    shared = ctx.subjects.now.terms & rules
    score = min(1.0, len(shared) / _ENOUGH)
    return SignalScore(
        name="system_rules", score=score, reason=f"{len(shared)} terms of what the prompt protects"
    )


@lru_cache(maxsize=256)
def _rule_terms(rules: str) -> frozenset[str]:
    return subject_terms(key_terms(rules)) if rules else frozenset()
