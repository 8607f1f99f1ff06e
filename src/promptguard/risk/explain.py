"""What each turn and each signal contributes to a session's accumulated risk."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from promptguard.risk.ledger import contributions, risk_of, total
from promptguard.risk.weights import MemoryWeights
from promptguard.state import Ledger
from promptguard.verdict import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Contributions in nats; `by_turn` and `by_signal` each sum to `nats`."""

    prior: float
    nats: float
    risk: float
    entries: tuple[Evidence, ...]
    by_turn: tuple[tuple[int, float], ...]
    by_signal: tuple[tuple[str, float], ...]


def attribute(ledger: Ledger, memory: MemoryWeights) -> Attribution:
    """Return what every turn and every signal contributes to the accumulated risk."""
    entries = contributions(ledger)
    turns: dict[int, list[float]] = defaultdict(list)
    signals: dict[str, list[float]] = defaultdict(list)
    for entry in entries:
        turns[entry.turn].append(entry.nats)
        signals[entry.signal].append(entry.nats)
    nats = total(ledger)
    return Attribution(
        prior=memory.floor,
        nats=nats,
        risk=risk_of(memory.floor + nats),
        entries=entries,
        by_turn=tuple(sorted((turn, math.fsum(v)) for turn, v in turns.items())),
        by_signal=tuple(sorted((name, math.fsum(v)) for name, v in signals.items())),
    )
