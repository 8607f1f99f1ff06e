"""What to do with a prompt and what to call it: one rule, from which every answer follows.

docs/concepts.md explains the rule; its constants are the published scale for LLM judges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from promptguard.core.layers import MultiNeutrosophicPrompt
from promptguard.core.reciprocity import ExchangeType, Reciprocity, reciprocity_of

RECIPROCAL_ABOVE = 0.5
BORDERLINE_FROM = 0.3
INDETERMINATE_FROM = 0.5


class Decision(StrEnum):
    """What to do with a prompt."""

    ALLOW = "allow"
    CAUTION = "caution"
    BLOCK = "block"


class Label(StrEnum):
    """What a prompt is called."""

    RECIPROCAL = "reciprocal"
    EXTRACTIVE = "extractive"
    MANIPULATIVE = "manipulative"
    BORDERLINE = "borderline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The decision on one prompt, its name, and the exchange that both rest on.

    `user_balance` is the lowest balance of a user layer taken alone. Whatever the merge
    strategy and the number of layers: *block* comes with balance -1 and the kind of violation
    that was found, *allow* with the label reciprocal and both balances above 0.5.
    """

    decision: Decision
    label: Label
    user_balance: float
    exchange: Reciprocity


def assess(
    prompt: MultiNeutrosophicPrompt, *, finding: Label, is_unresolved: bool = False
) -> Assessment:
    """Decide on a prompt with at least one user layer.

    `finding` is the kind of violation that the evaluations point to most. `is_unresolved` marks
    a doubt that a further judge should have settled and did not: that is never *allow*.
    """
    exchange = reciprocity_of(prompt)
    users = tuple(layer for layer in prompt if not layer.priority.is_trusted)
    # Alone, because a developer's layer outweighs the user's ten to one in the balance, and
    # adding one must not turn a doubtful request into a reciprocal one.
    alone = min(reciprocity_of(MultiNeutrosophicPrompt([layer])).balance for layer in users)
    standing = min(alone, exchange.balance)
    is_clear = standing > RECIPROCAL_ABOVE and exchange.exchange_type is not ExchangeType.EXTRACTIVE
    is_undecided = is_unresolved or any(
        layer.value.indeterminacy >= INDETERMINATE_FROM for layer in users
    )
    if any(layer.is_detection for layer in users):
        decision, label = Decision.BLOCK, finding
    elif is_clear and not is_undecided:
        decision, label = Decision.ALLOW, Label.RECIPROCAL
    else:
        decision = Decision.CAUTION
        label = finding if standing < BORDERLINE_FROM else Label.BORDERLINE
    return Assessment(decision=decision, label=label, user_balance=alone, exchange=exchange)


def finding_of(found: Iterable[tuple[float, Label]]) -> Label:
    """Return the kind of violation with the highest falsehood; manipulative where there is none.

    Of equals extractive is the more telling: a structure is found by its own marks, while an
    extreme structure usually disturbs the semantic evaluation as well.
    """
    ranked = [(falsehood, kind is Label.EXTRACTIVE, kind) for falsehood, kind in found]
    return max(ranked)[2] if ranked else Label.MANIPULATIVE
