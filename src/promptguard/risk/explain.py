"""Why a conversation stands where it stands: contributions by turn and by signal."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from promptguard.risk.ledger import contributions, risk_of, total
from promptguard.state import Evidence, Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Contributions in nats; `by_turn` and `by_signal` each sum to `nats`."""

    prior: float
    nats: float
    risk: float
    entries: tuple[Evidence, ...]
    by_turn: tuple[tuple[int, float], ...]
    by_signal: tuple[tuple[str, float], ...]


def attribute(ledger: Ledger, prior: float) -> Attribution:
    """Return what every turn and every signal contributes to the present risk."""
    entries = contributions(ledger)
    turns: dict[int, list[float]] = defaultdict(list)
    signals: dict[str, list[float]] = defaultdict(list)
    for entry in entries:
        turns[entry.turn].append(entry.nats)
        signals[entry.signal].append(entry.nats)
    nats = total(ledger)
    return Attribution(
        prior=prior,
        nats=nats,
        risk=risk_of(nats, prior),
        entries=entries,
        by_turn=tuple(sorted((turn, math.fsum(v)) for turn, v in turns.items())),
        by_signal=tuple(sorted((name, math.fsum(v)) for name, v in signals.items())),
    )


def heaviest_turns(attribution: Attribution, *, before: int) -> tuple[int, ...]:
    """Return the earlier turns that speak for an attack, the heaviest first."""
    weighed = [
        (nats, turn) for turn, nats in attribution.by_turn if 0 <= turn < before and nats > 0
    ]
    return tuple(turn for _, turn in sorted(weighed, key=lambda item: (-item[0], item[1])))
