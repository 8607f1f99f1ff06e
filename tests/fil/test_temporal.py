"""What earlier turns mean for the current one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conversations import EMPTY, record
from hypothesis import given
from hypothesis import strategies as st

from promptguard.fil.parameters import read_parameters
from promptguard.fil.temporal import (
    counterfactual,
    decay,
    escalation_shapes,
    fold_residue,
    risk_per_directive,
    update_escalations,
)
from promptguard.protocols import FilReading
from promptguard.state import ConversationHistory, EscalationEvent, Residue, TurnRecord

PARAMETERS = read_parameters()
NOW = 10_000.0


def _past(*turns: TurnRecord, residues: tuple[Residue, ...] = ()) -> ConversationHistory:
    return replace(EMPTY, recent=turns, residues=residues).history


@pytest.mark.parametrize(
    ("age", "left"), [(0, 1.0), (180, 0.5), (360, 0.25), (900, 0.1), (-5, 1.0)]
)
def test_decay_halves_to_a_floor(age: float, left: float) -> None:
    """Half after three minutes, never below a tenth, and a clock gone backwards is age zero."""
    assert decay(age, PARAMETERS.decay) == pytest.approx(left)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_decay_never_grows_with_age(one: float, other: float) -> None:
    """Older is never stronger."""
    young, old = sorted((one, other))
    assert decay(old, PARAMETERS.decay) <= decay(young, PARAMETERS.decay) <= 1.0


def test_risk_adds_harm_decay_and_severity_and_the_residue() -> None:
    """Σ harm · decay · severity over user messages, and residues at the floor."""
    past = _past(
        record(1, NOW - 180, harm=1.0, directives=("FIL-01d",)),
        record(2, NOW, harm=0.5, directives=("FIL-01d", "FIL-03")),
        residues=(Residue(directive="FIL-03", harm=2.0, events=2),),
    )
    risk = risk_per_directive(past, PARAMETERS, now=NOW)
    assert risk["FIL-01d"] == pytest.approx(0.5 + 0.5)
    assert risk["FIL-03"] == pytest.approx(0.5 * 2.5 + 2.0 * 0.1 * 2.5)


def test_rising_scores_are_an_escalation() -> None:
    """Three scores that do not fall and end at 0.60 or more."""
    weights = PARAMETERS.escalation
    scores = (0.2, 0.4, 0.65)
    past = _past(*[record(i, NOW, harm=harm) for i, harm in enumerate(scores)])
    assert escalation_shapes(past, weights, now=NOW) == ("rising",)
    falling = _past(*[record(i, NOW, harm=harm) for i, harm in enumerate((0.5, 0.4, 0.65))])
    assert escalation_shapes(falling, weights, now=NOW) == ()
    mild = _past(*[record(i, NOW, harm=harm) for i, harm in enumerate((0.2, 0.4, 0.59))])
    assert escalation_shapes(mild, weights, now=NOW) == ()
    short = _past(record(1, NOW, harm=0.9), record(2, NOW, harm=0.9))
    assert escalation_shapes(short, weights, now=NOW) == ()


def test_three_directives_are_an_escalation() -> None:
    """Different directives from several messages count together."""
    past = _past(
        record(1, NOW, directives=("FIL-01a",)), record(2, NOW, directives=("FIL-03", "FIL-05"))
    )
    assert escalation_shapes(past, PARAMETERS.escalation, now=NOW) == ("diverse",)


def test_a_burst_is_counted_per_message() -> None:
    """Three flagged messages within two minutes, however many directives each violates."""
    events = tuple(EscalationEvent(timestamp=NOW - age, turn=1) for age in (110, 60, 5))
    past = replace(EMPTY, escalations=events).history
    assert escalation_shapes(past, PARAMETERS.escalation, now=NOW) == ("burst",)
    assert escalation_shapes(past, PARAMETERS.escalation, now=NOW + 20) == ()


def test_the_counterfactual_counts_only_shared_directives() -> None:
    """Past risk of the same directive makes a violation, another directive's does not."""
    past = _past(record(1, NOW, harm=1.0, directives=("FIL-01d",)))
    shared = counterfactual(("FIL-01d",), past, (), PARAMETERS, now=NOW)
    assert shared.severity > 0
    assert shared.severity == pytest.approx(0.5)
    assert not counterfactual(("FIL-03",), past, (), PARAMETERS, now=NOW).severity
    assert not counterfactual((), past, ("burst",), PARAMETERS, now=NOW).severity


def test_the_counterfactual_is_capped_and_stricter_in_an_escalation() -> None:
    """Severity never exceeds 2; within an escalation any directive is a violation of 1.5."""
    heavy = _past(*[record(i, NOW, harm=1.0, directives=("FIL-01b",)) for i in range(8)])
    assert counterfactual(("FIL-01b",), heavy, (), PARAMETERS, now=NOW).severity == 2.0
    light = _past(record(1, NOW, harm=0.1, directives=("FIL-04",)))
    assert counterfactual(("FIL-05",), light, ("rising",), PARAMETERS, now=NOW).severity == 1.5


def test_what_leaves_the_window_leaves_a_residue() -> None:
    """One residue per directive gathers harm and events, and stays when nothing is added."""
    residues = fold_residue((), record(1, 0.0, harm=1.0, directives=("FIL-03", "FIL-04")))
    residues = fold_residue(residues, record(2, 0.0, harm=0.5, directives=("FIL-03",)))
    residues = fold_residue(residues, record(3, 0.0))
    assert residues == (
        Residue(directive="FIL-03", harm=1.5, events=2),
        Residue(directive="FIL-04", harm=1.0, events=1),
    )


def test_escalation_events_are_pruned_and_bounded() -> None:
    """Only flagged messages leave an event, old ones go, and the list stays short."""
    weights = PARAMETERS.escalation
    blocked, calm = FilReading(is_blocking=True), FilReading()
    events: tuple[EscalationEvent, ...] = ()
    for turn in range(40):
        events = update_escalations(events, blocked, weights, turn=turn, now=float(turn))
    assert len(events) == weights.max_events
    assert events[-1].turn == 39
    assert update_escalations(events, calm, weights, turn=40, now=40.0) == events
    assert update_escalations(events, calm, weights, turn=41, now=1000.0) == ()
