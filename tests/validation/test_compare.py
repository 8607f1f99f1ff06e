"""Contenders are compared in pairs, and what they caught is attributed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled import case, outcome

from promptguard.config import ControllerConfig
from promptguard.validation.compare import (
    attribution,
    mcnemar,
    pairings,
    signal_attribution,
)
from promptguard.validation.contenders import Contender


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [(0, 0, 1.0), (5, 5, 1.0), (1, 9, 22 / 1024), (0, 6, 2 / 64), (3, 8, 2 * 232 / 2048)],
)
def test_mcnemar_by_hand(first: int, second: int, p: float) -> None:
    """Sums of binomial coefficients, done on paper."""
    assert mcnemar(first, second) == pytest.approx(p)


@given(st.integers(0, 20_000), st.integers(0, 20_000))
def test_mcnemar_is_a_symmetric_probability(first: int, second: int) -> None:
    """Large counts neither overflow nor leave [0, 1]."""
    p = mcnemar(first, second)
    assert 0.0 <= p <= 1.0
    assert p == mcnemar(second, first)


def contender(name: str, *, is_part: bool = False) -> Contender:
    return Contender(name=name, settings=ControllerConfig(), is_part=is_part)


CASES = tuple(case(n, is_attack=n < 4) for n in range(6))
OUTCOMES = {
    "whole": tuple(outcome(n, s) for n, s in enumerate((1, 1, 1, 0, 0, 0))),
    "left": tuple(outcome(n, s) for n, s in enumerate((1, 0, 0, 0, 1, 0))),
    "right": tuple(outcome(n, s) for n, s in enumerate((1, 1, 0, 0, 0, 0))),
}
CONTENDERS = (contender("whole"), contender("left", is_part=True), contender("right", is_part=True))


def test_pairings_count_who_alone_was_right() -> None:
    """The first contender against each of the others."""
    left, right = pairings(CASES, OUTCOMES)
    assert (left.second, left.only_first_right, left.only_second_right) == ("left", 3, 0)
    assert (right.only_first_right, right.only_second_right) == (1, 0)
    assert left.p_value == pytest.approx(0.25)


def test_cases_that_one_could_not_judge_are_left_out_of_a_pairing() -> None:
    """A failure is not a wrong answer."""
    failed = tuple(outcome(n, 0.0, error="no") for n in range(6))
    (found,) = pairings(CASES, {"whole": OUTCOMES["whole"], "left": failed})
    assert (found.only_first_right, found.only_second_right) == (0, 0)


def test_attribution_says_who_caught_what_others_missed() -> None:
    """Row caught, column missed; and what only the combination caught."""
    found = attribution(CASES, OUTCOMES, CONTENDERS)
    assert found.caught == (3, 1, 2)
    assert found.matrix == ((0, 2, 1), (0, 0, 0), (0, 1, 0))
    assert found.only_by == (1, 0, 1)
    assert found.only_together == 1
    assert found.attacks == 4


def test_signals_are_attributed_from_their_nats() -> None:
    """Alone enough, needed, or only together; a veto is counted apart."""
    said = (
        (("fil", 5.0), ("semantic", 0.5)),
        (("fil", 2.0), ("semantic", 2.0)),
        (("fil", 4.0), ("semantic", 4.0)),
    )
    attacks = tuple(case(n, is_attack=True) for n in range(4))
    outcomes = [outcome(n, 0.9, prior=-3.0, nats=nats) for n, nats in enumerate(said)]
    outcomes.append(outcome(3, 0.1, is_flagged=True, is_hard=True))
    found = signal_attribution(attacks, outcomes, bar=0.0)
    assert (found.caught, found.hard, found.only_together) == (4, 1, 1)
    fil, semantic = found.signals
    assert (fil.signal, fil.alone, fil.needed) == ("fil", 2, 2)
    assert (semantic.alone, semantic.needed) == (1, 1)


def test_a_content_acted_on_below_the_bar_was_enough_alone() -> None:
    """Where contents are stripped from a lower range on, no signal beside them was needed."""
    nats = (("semantic", -1.0), ("content", 2.5))
    caught = outcome(0, 0.2, is_flagged=True, prior=-3.0, nats=nats)
    found = signal_attribution((case(0, is_attack=True),), (caught,), bar=0.0)
    assert (found.caught, found.hard, found.only_together) == (1, 0, 0)
    content, semantic = found.signals
    assert (content.alone, content.needed) == (1, 1)
    assert (semantic.alone, semantic.needed) == (0, 0)
