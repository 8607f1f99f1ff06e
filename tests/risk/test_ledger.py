"""What a session has shown adds up, telescopes, fades by turns and time, and stays bounded."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from promptguard.risk.explain import attribute
from promptguard.risk.ledger import (
    MAX_ENTRIES,
    accumulated_risk,
    add_turn,
    contributions,
    fade,
    risk_of,
    total,
)
from promptguard.risk.weights import MemoryWeights
from promptguard.state import Ledger
from promptguard.verdict import Evidence

MEMORY = MemoryWeights(half_life_turns=8.0, half_life_s=3600.0, residue=0.1, floor=-4.0)
odds = st.floats(-12, 12)
turns = st.lists(st.tuples(odds, st.floats(0, 5000)), min_size=1, max_size=60)


def evidence(turn: int, nats: float) -> tuple[Evidence, ...]:
    return (
        Evidence(turn=turn, signal="semantic", nats=nats * 0.75),
        Evidence(turn=turn, signal="context", nats=nats * 0.25),
    )


def ledger_of(*rows: tuple[float, float]) -> Ledger:
    ledger = Ledger()
    for number, (log_odds, elapsed_s) in enumerate(rows, 1):
        given_nats = evidence(number, log_odds + 3.0)
        ledger = add_turn(ledger, number, given_nats, log_odds, MEMORY, elapsed_s)
    return ledger


@given(turns)
def test_contributions_sum_to_the_total(rows: list[tuple[float, float]]) -> None:
    """What every turn and signal contributes adds up to the evidence, exactly."""
    ledger = ledger_of(*rows)
    attribution = attribute(ledger, MEMORY)
    for parts in (
        [e.nats for e in contributions(ledger)],
        [nats for _, nats in attribution.by_turn],
        [nats for _, nats in attribution.by_signal],
    ):
        assert math.isclose(math.fsum(parts), total(ledger), abs_tol=1e-9)
    assert attribution.risk == accumulated_risk(ledger, MEMORY)


@given(turns)
def test_the_last_turn_is_never_forgotten_at_once(rows: list[tuple[float, float]]) -> None:
    """The accumulated risk is at least that of the turn just judged, and a probability."""
    risk = accumulated_risk(ledger_of(*rows), MEMORY)
    assert 0.0 <= risk <= 1.0
    assert risk >= risk_of(rows[-1][0]) - 0.01


@given(st.floats(-3, 12), st.lists(st.floats(-12, 12), max_size=20))
def test_a_new_peak_telescopes_to_its_own_log_odds(peak: float, before: list[float]) -> None:
    """Nothing counts twice: a turn above all before it gives the sum its own log-odds."""
    lower = [(min(value, peak), 0.0) for value in before]
    ledger = ledger_of(*lower, (peak + 0.02, 0.0))
    assert math.isclose(MEMORY.floor + total(ledger), peak + 0.02, abs_tol=0.02)


def test_calm_turns_let_it_fade_but_never_wholly() -> None:
    """By turns the evidence halves at its half-life and ends at the residue."""
    ledger = ledger_of((4.0, 0.0))
    first = total(ledger)
    halved = ledger
    for _ in range(8):
        halved = fade(halved, MEMORY, 0.0)
    assert math.isclose(total(halved), first / 2, rel_tol=1e-9)
    for _ in range(500):
        halved = fade(halved, MEMORY, 0.0)
    assert math.isclose(total(halved), 0.1 * first, rel_tol=1e-9)


def test_time_alone_lets_it_fade() -> None:
    """An hour of silence halves it once more than the turn itself."""
    ledger = ledger_of((4.0, 0.0))
    quick, late = fade(ledger, MEMORY, 0.0), fade(ledger, MEMORY, 3600.0)
    assert math.isclose(total(late), total(quick) / 2, rel_tol=1e-9)


@given(st.floats(0, 10), st.lists(st.floats(-12, -4.5), min_size=1, max_size=40))
def test_risk_never_rises_by_waiting(peak: float, calm: list[float]) -> None:
    """Harmless turns after a bad one add nothing."""
    ledger = ledger_of((peak, 0.0))
    for number, value in enumerate(calm, 2):
        later = add_turn(ledger, number, evidence(number, value), value, MEMORY, 30.0)
        assert total(later) <= total(ledger) + 1e-12
        ledger = later


def test_the_ledger_is_bounded_over_thousands_of_turns() -> None:
    """Turn 5,000 has no more entries than turn 50, and the strongest are the ones kept."""
    ledger = Ledger()
    for number in range(1, 5001):
        value = 6.0 if number == 10 else -3.0 + (number % 7) * 0.4
        ledger = add_turn(ledger, number, evidence(number, value), value, MEMORY, 1.0)
    assert len(ledger.entries) <= MAX_ENTRIES
    assert 10 in {entry.turn for entry in ledger.entries}


def test_a_gain_without_evidence_is_the_priors() -> None:
    """Where no signal speaks for an attack the prior is named, so that the sum stays whole."""
    ledger = add_turn(Ledger(), 1, (), -2.0, MEMORY, 0.0)
    assert contributions(ledger) == (Evidence(turn=1, signal="prior", nats=2.0),)
