"""The evidence ledger adds up, leaks, leaves a residue and stays bounded."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from promptguard.protocols import SignalScore
from promptguard.risk.explain import attribute, heaviest_turns
from promptguard.risk.ledger import MAX_ENTRIES, add_turn, contributions, risk_of, total
from promptguard.risk.weights import shipped_weights
from promptguard.state import Ledger

WEIGHTS = shipped_weights()
PRIOR = -3.0
scores = st.floats(0, 1)
turns = st.lists(st.tuples(scores, scores, scores), min_size=1, max_size=40)


def said(semantic: float, context: float = 0.02, fil: float = 0.0) -> list[SignalScore]:
    return [
        SignalScore(name="semantic", score=semantic, reason="s"),
        SignalScore(name="context", score=context, reason="c"),
        SignalScore(name="fil", score=fil, reason="f"),
    ]


def ledger_of(*rows: tuple[float, float, float]) -> Ledger:
    ledger = Ledger()
    for number, row in enumerate(rows, 1):
        ledger = add_turn(ledger, number, said(*row), WEIGHTS, PRIOR)
    return ledger


@given(turns)
def test_contributions_sum_to_the_total(rows: list[tuple[float, float, float]]) -> None:
    """What every turn and signal contributes adds up to the evidence, exactly."""
    ledger = ledger_of(*rows)
    assert math.isclose(
        math.fsum(e.nats for e in contributions(ledger)), total(ledger), abs_tol=1e-9
    )
    attribution = attribute(ledger, PRIOR)
    assert math.isclose(
        math.fsum(n for _, n in attribution.by_turn), attribution.nats, abs_tol=1e-9
    )
    assert math.isclose(
        math.fsum(n for _, n in attribution.by_signal), attribution.nats, abs_tol=1e-9
    )


@given(turns)
def test_risk_is_a_probability(rows: list[tuple[float, float, float]]) -> None:
    """Whatever is said, the risk stays in [0, 1]."""
    assert 0.0 <= risk_of(total(ledger_of(*rows)), PRIOR) <= 1.0


def test_ledger_is_bounded_over_thousands_of_turns() -> None:
    """Ten thousand turns leave no more entries than a hundred."""
    ledger = Ledger()
    for number in range(1, 2001):
        ledger = add_turn(ledger, number, said(0.6, 0.5, 0.1), WEIGHTS, PRIOR)
    assert len(ledger.entries) <= MAX_ENTRIES
    assert len(ledger.carried) <= 3


def test_greetings_do_not_launder_a_high_risk_session() -> None:
    """After five risky turns and twenty calm ones at least four fifths of the evidence is left."""
    ledger = ledger_of(*[(0.99, 0.98, 0.9)] * 5)
    before = total(ledger)
    for number in range(6, 26):
        ledger = add_turn(ledger, number, said(0.01, 0.98, 0.0), WEIGHTS, PRIOR)
    assert total(ledger) >= 0.8 * before


def test_one_bad_turn_is_forgiven() -> None:
    """A single suspicious turn fades over calm turns."""
    ledger = ledger_of((0.9, 0.3, 0.0))
    first = total(ledger)
    for number in range(2, 12):
        ledger = add_turn(ledger, number, said(0.02), WEIGHTS, PRIOR)
    assert total(ledger) < first / 2


def test_calm_turns_cannot_be_saved_up() -> None:
    """A hundred calm turns give an attack no more credit than two."""
    attack = (0.97, 0.9, 0.5)
    calm = (0.02, 0.02, 0.0)
    after_two = total(ledger_of(calm, calm, attack))
    after_many = total(ledger_of(*[calm] * 100, attack))
    assert math.isclose(after_two, after_many, rel_tol=0.15)


def test_risk_does_not_rise_by_waiting() -> None:
    """After a bad turn that follows calm ones, further calm turns add nothing to the risk."""
    ledger = ledger_of((0.02, 0.02, 0.0), (0.02, 0.02, 0.0), (0.99, 0.98, 0.9))
    assert risk_of(total(ledger), PRIOR) >= WEIGHTS.leak.slow_from_risk
    for number in range(4, 16):
        later = add_turn(ledger, number, said(0.02, 0.02, 0.0), WEIGHTS, PRIOR)
        assert total(later) <= total(ledger)
        ledger = later


def test_order_matters() -> None:
    """The same turns in another order give another risk."""
    rising = ledger_of((0.05, 0.1, 0.0), (0.4, 0.4, 0.0), (0.9, 0.9, 0.4))
    falling = ledger_of((0.9, 0.9, 0.4), (0.4, 0.4, 0.0), (0.05, 0.1, 0.0))
    assert total(rising) != total(falling)


def test_heaviest_turns_come_first() -> None:
    """The turn that speaks most for an attack is named first."""
    attribution = attribute(ledger_of((0.6, 0.1, 0.0), (0.99, 0.1, 0.9), (0.5, 0.1, 0.0)), PRIOR)
    assert heaviest_turns(attribution, before=3)[0] == 2
