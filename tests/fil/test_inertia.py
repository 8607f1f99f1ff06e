"""Repeated events weigh more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conversations import EMPTY, record
from hypothesis import given
from hypothesis import strategies as st

from promptguard.fil.parameters import read_parameters
from promptguard.fil.temporal import amplification, events_of, past_of
from promptguard.state import ConversationHistory

PARAMETERS = read_parameters()


def _past(*directives: tuple[str, ...]) -> ConversationHistory:
    turns = tuple(record(i, float(i), directives=found) for i, found in enumerate(directives))
    return replace(EMPTY, recent=turns).history


@pytest.mark.parametrize(
    ("events", "expected"), [(0, 1.0), (2, 1.0), (3, 1.0), (4, 1.2), (6, 1.6), (8, 2.0), (10, 2.0)]
)
def test_amplification_follows_the_formula(events: int, expected: float) -> None:
    """1 below four events, then 0.2 more with each, at most 2."""
    assert amplification(events, PARAMETERS.inertia) == pytest.approx(expected)


@given(st.integers(0, 1000))
def test_amplification_never_falls_and_stays_bounded(events: int) -> None:
    """More events never weigh less."""
    here = amplification(events, PARAMETERS.inertia)
    assert 1.0 <= here <= amplification(events + 1, PARAMETERS.inertia) <= 2.0


def test_children_count_for_the_parent() -> None:
    """Events of 01a and 01b are events of 01, not of each other."""
    past = _past(("FIL-01a",), ("FIL-01b",), ("FIL-01",), ("FIL-02a",))
    assert events_of("FIL-01", past, 10) == 3
    assert events_of("FIL-01a", past, 10) == 1


def test_the_score_sums_over_directives() -> None:
    """Σ (amp - 1) · severity · 0.5, exactly."""
    past = _past(*[("FIL-01a", "FIL-05")] * 4)
    found = past_of(("FIL-01a", "FIL-05"), past, PARAMETERS, now=0.0)
    assert found.amplifications == {"FIL-01a": pytest.approx(1.2), "FIL-05": pytest.approx(1.2)}
    assert found.inertia == pytest.approx(0.2 * (1.8 + 1.3) * 0.5)
