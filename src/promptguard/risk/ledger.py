"""The evidence ledger: entries in nats that add up, leak, and leave a residue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from promptguard.protocols import SignalScore
from promptguard.risk.weights import LeakWeights, Weights
from promptguard.state import Carried, Evidence, Ledger

MAX_ENTRIES = 96
MATERIAL_NATS = 0.01


def total(ledger: Ledger) -> float:
    """Return the evidence that is left, in nats."""
    listed = zip(ledger.entries, ledger.retained, strict=True)
    return math.fsum(
        [*(entry.nats * share for entry, share in listed), *(c.nats for c in ledger.carried)]
    )


def risk_of(nats: float, prior: float) -> float:
    """Return the probability of an attack given the evidence and the prior log-odds."""
    odds = prior + nats
    if odds >= 0:
        return 1.0 / (1.0 + math.exp(-odds))
    grown = math.exp(odds)
    return grown / (1.0 + grown)


def contributions(ledger: Ledger) -> tuple[Evidence, ...]:
    """Return what each entry still weighs; turn -1 stands for turns too old to be listed.

    The nats of the result sum exactly to `total`.
    """
    listed = tuple(
        replace(entry, nats=entry.nats * share)
        for entry, share in zip(ledger.entries, ledger.retained, strict=True)
    )
    carried = tuple(
        Evidence(turn=-1, signal=c.signal, nats=c.nats, reason="earlier turns")
        for c in ledger.carried
    )
    return (*carried, *listed)


def add_turn(
    ledger: Ledger, turn: int, scores: Sequence[SignalScore], weights: Weights, prior: float
) -> Ledger:
    """Return the ledger after one more turn: everything leaks, then the new evidence is added."""
    risk_before = risk_of(total(ledger), prior)
    leaked = leak(ledger, weights.leak, risk_before)
    entries = _relieved(_evidence(leaked, turn, scores, weights), leaked, weights.leak, risk_before)
    return _bounded(
        Ledger(
            entries=(*leaked.entries, *entries),
            retained=(*leaked.retained, *(1.0 for _ in entries)),
            carried=leaked.carried,
        ),
        weights.leak.residue,
    )


def leak(ledger: Ledger, weights: LeakWeights, risk: float) -> Ledger:
    """Return the ledger one turn later: suspicion fades slowly where risk is high, and never
    below its residue; credit for calm turns fades fast, so that none can be saved up.

    Where risk is high credit fades as slowly as suspicion, lest risk rise by mere waiting.
    """
    is_slow = risk >= weights.slow_from_risk
    half_life = weights.slow_half_life_turns if is_slow else weights.half_life_turns
    factor = 2.0 ** (-1.0 / half_life)
    credit = factor if is_slow else 2.0 ** (-1.0 / weights.credit_half_life_turns)
    return replace(
        ledger,
        retained=tuple(
            max(weights.residue, share * factor) if entry.nats > 0 else share * credit
            for entry, share in zip(ledger.entries, ledger.retained, strict=True)
        ),
        carried=tuple(
            replace(c, nats=c.frozen + (c.nats - c.frozen) * factor) for c in ledger.carried
        ),
    )


def _evidence(
    ledger: Ledger, turn: int, scores: Sequence[SignalScore], weights: Weights
) -> tuple[Evidence, ...]:
    entries = []
    for score in scores:
        weight = weights.signals.get(score.name)
        if weight is None:
            continue
        nats = weight.nats(score.score)
        if weight.kind == "level":
            nats -= math.fsum(
                [
                    *(
                        entry.nats * share
                        for entry, share in zip(ledger.entries, ledger.retained, strict=True)
                        if entry.signal == score.name
                    ),
                    *(c.nats for c in ledger.carried if c.signal == score.name),
                ]
            )
        if abs(nats) >= MATERIAL_NATS:
            entries.append(Evidence(turn=turn, signal=score.name, nats=nats, reason=score.reason))
    return tuple(entries)


def _relieved(
    entries: tuple[Evidence, ...], ledger: Ledger, weights: LeakWeights, risk_before: float
) -> tuple[Evidence, ...]:
    """Scale an exonerating turn down: it takes little from what is suspected already."""
    change = math.fsum(entry.nats for entry in entries)
    suspected = total(ledger)
    is_slow = risk_before >= weights.slow_from_risk
    relief = weights.slow_relief_nats if is_slow else weights.relief_nats
    if change >= 0 or suspected <= relief:
        return entries
    share = min(1.0, relief / -change)
    return tuple(
        scaled
        for scaled in (replace(entry, nats=entry.nats * share) for entry in entries)
        if abs(scaled.nats) >= MATERIAL_NATS
    )


def _bounded(ledger: Ledger, residue: float) -> Ledger:
    surplus = len(ledger.entries) - MAX_ENTRIES
    if surplus <= 0:
        return ledger
    carried = {c.signal: c for c in ledger.carried}
    for entry, share in zip(ledger.entries[:surplus], ledger.retained[:surplus], strict=True):
        before = carried.get(entry.signal, Carried(signal=entry.signal, nats=0.0, frozen=0.0))
        carried[entry.signal] = replace(
            before,
            nats=before.nats + entry.nats * share,
            frozen=before.frozen + max(0.0, entry.nats) * min(share, residue),
        )
    return Ledger(
        entries=ledger.entries[surplus:],
        retained=ledger.retained[surplus:],
        carried=tuple(carried.values()),
    )
