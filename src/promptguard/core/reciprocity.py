"""How reciprocal an exchange is: balance, flows and exchange type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from promptguard.core.layers import Layer, MultiNeutrosophicPrompt, variance
from promptguard.core.trust import Trust, trust_of

CIRCUIT_BREAKER = -1.0
GREAT_FALSEHOOD = 0.6


class ExchangeType(StrEnum):
    """What kind of exchange the layers make."""

    GENERATIVE = "generative"
    RECIPROCAL = "reciprocal"
    NEUTRAL = "neutral"
    EXTRACTIVE = "extractive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reciprocity:
    """The exchange between the layers of one prompt; `balance` lies in [-1, 1]."""

    balance: float
    exchange_type: ExchangeType
    flows: Mapping[str, float]
    trust: Trust


def reciprocity_of(prompt: MultiNeutrosophicPrompt) -> Reciprocity:
    """Return balance, flows and exchange type of a prompt's layers."""
    trust = trust_of(prompt)
    # What flows between every two layers, keyed like "SYSTEM→USER".
    flows = {
        f"{high.name}→{low.name}": (_given(high) + _given(low)) / 2 for high, low in prompt.pairs()
    }
    balance = _balance(prompt, trust)
    kind = exchange_type_of(balance, flows)
    return Reciprocity(balance=balance, exchange_type=kind, flows=flows, trust=trust)


def _balance(prompt: MultiNeutrosophicPrompt, trust: Trust) -> float:
    """Return the ayni balance; any trust violation gives -1, the circuit breaker."""
    if trust.violations:
        return CIRCUIT_BREAKER
    whole = prompt.aggregate()
    spread = variance(tuple(layer.value.truth for layer in prompt)) * (1 - 0.5 * trust.strength)
    balance = whole.truth
    balance += 0.1 * math.sqrt(spread) if whole.truth > 0.7 else -0.2 * spread
    balance -= 0.5 * abs(whole.indeterminacy - 0.3)
    worst = max((layer.value.falsehood for layer in prompt), default=0.0)
    balance -= 0.8 if worst > GREAT_FALSEHOOD else 0.5 * worst
    return min(1.0, max(-1.0, balance))


def exchange_type_of(balance: float, flows: Mapping[str, float]) -> ExchangeType:
    """Return the exchange type; without flows only the balance counts."""
    flow = fmean(flows.values()) if flows else None
    if balance < -0.3 or (flow is not None and flow < 0.3):
        return ExchangeType.EXTRACTIVE
    if balance > 0.5 and (flow is None or flow > 0.6):
        return ExchangeType.GENERATIVE
    if abs(balance) < 0.1:
        return ExchangeType.NEUTRAL
    return ExchangeType.RECIPROCAL


def _given(layer: Layer) -> float:
    return layer.value.truth * (1 - layer.value.falsehood)
