"""What a session has shown: the strongest evidence so far, fading, attributed to its turns.

The log-odds of the accumulated risk are `floor` plus the entries that are left. A turn adds only
what its own log-odds exceed what is left of earlier ones, so that nothing counts twice: at the
moment of the strongest evidence the sum telescopes to that turn's own log-odds, and afterwards it
fades by turns and by time down to a residue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from promptguard.risk.weights import MemoryWeights
from promptguard.state import Ledger, LedgerEntry
from promptguard.verdict import Evidence

MAX_ENTRIES = 24
MATERIAL_NATS = 0.01


def risk_of(log_odds: float) -> float:
    """Return the probability of log-odds, without overflow."""
    if log_odds >= 0:
        return 1.0 / (1.0 + math.exp(-log_odds))
    grown = math.exp(log_odds)
    return grown / (1.0 + grown)


def total(ledger: Ledger) -> float:
    """Return the evidence that is left, in nats above the floor."""
    return math.fsum(entry.nats * entry.retained for entry in ledger.entries)


def accumulated_risk(ledger: Ledger, memory: MemoryWeights) -> float:
    """Return the probability that the session has shown an attack."""
    return risk_of(memory.floor + total(ledger))


def add_turn(
    ledger: Ledger,
    turn: int,
    evidence: Sequence[Evidence],
    log_odds: float,
    memory: MemoryWeights,
    elapsed_s: float,
) -> Ledger:
    """Return the ledger after a turn of the given log-odds, `elapsed_s` after the one before."""
    faded = fade(ledger, memory, elapsed_s)
    gain = log_odds - memory.floor - total(faded)
    if gain < MATERIAL_NATS:
        return faded
    new = LedgerEntry(turn=turn, nats=gain, retained=1.0, signals=_shares(evidence, gain))
    return _bounded(Ledger(entries=(*faded.entries, new)))


def fade(ledger: Ledger, memory: MemoryWeights, elapsed_s: float) -> Ledger:
    """Return the ledger one turn later."""
    kept = memory.kept(elapsed_s)
    return Ledger(
        entries=tuple(
            replace(entry, retained=max(memory.residue, entry.retained * kept))
            for entry in ledger.entries
        )
    )


def contributions(ledger: Ledger) -> tuple[Evidence, ...]:
    """Return what each turn and signal still weighs; the nats sum to `total`."""
    return tuple(
        Evidence(turn=entry.turn, signal=signal, nats=nats * entry.retained)
        for entry in ledger.entries
        for signal, nats in entry.signals
    )


def _shares(evidence: Sequence[Evidence], gain: float) -> tuple[tuple[str, float], ...]:
    """Split a gain over the signals that speak for it, by how much they say."""
    speaking = {e.signal: e.nats for e in evidence if e.nats > 0}
    whole = math.fsum(speaking.values())
    if not whole:
        return (("prior", gain),)
    return tuple((signal, gain * nats / whole) for signal, nats in speaking.items())


def _bounded(ledger: Ledger) -> Ledger:
    """Keep the strongest entries: what is dropped weighs least."""
    if len(ledger.entries) <= MAX_ENTRIES:
        return ledger
    weakest = min(ledger.entries, key=lambda entry: entry.nats * entry.retained)
    return Ledger(entries=tuple(entry for entry in ledger.entries if entry is not weakest))
