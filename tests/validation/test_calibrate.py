"""Thresholds keep the budget that they promise, or are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled import case, noisy_traces, open_fake, outcome, trace

from promptguard.config import ControllerConfig
from promptguard.errors import DataError
from promptguard.risk.weights import Weights, shipped_weights
from promptguard.validation.calibrate import (
    calibrate_falsehood,
    calibrate_prior,
    conformal,
    least_cases,
    next_version,
    upper_share,
    with_budgets,
)
from promptguard.validation.contenders import Openers
from promptguard.validation.score_trace import critical_prior, is_blocked, record_traces

WEIGHTS = shipped_weights()
CRITICAL = 0.7


@pytest.mark.parametrize(("share", "needed"), [(0.01, 99), (0.05, 19), (0.002, 499), (0.5, 1)])
def test_how_much_data_a_budget_needs(share: float, needed: int) -> None:
    """One case fewer is refused, and the message says how many are needed."""
    assert least_cases(share) == needed
    assert conformal([0.0] * needed, share).rank == needed
    with pytest.raises(DataError, match=f"at least {needed} "):
        conformal([0.0] * (needed - 1), share)


@given(st.lists(st.floats(-5, 5), min_size=20, max_size=200), st.sampled_from([0.05, 0.1, 0.3]))
def test_a_conformal_threshold_keeps_its_share_in_the_sample(
    scores: list[float], share: float
) -> None:
    """Never more than the budget lies above."""
    bound = conformal(scores, share)
    assert sum(score > bound.threshold for score in scores) <= share * (len(scores) + 1)


def test_the_guarantee_holds_on_new_data() -> None:
    """Over many samples the mean share above is within the budget, and not far below it."""
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(400):
        bound = conformal(rng.random(99).tolist(), 0.05)
        shares.append(1 - bound.threshold)
    assert np.mean(shares) <= 0.05 + 0.003
    assert np.mean(shares) > 0.04
    exceeded = np.mean(np.array(shares) > conformal(rng.random(99).tolist(), 0.05).upper)
    assert exceeded <= 0.08


def test_the_upper_share_by_hand() -> None:
    """With no case above, (1 - u)^n = 0.05."""
    assert upper_share(299, 299) == pytest.approx(1 - 0.05 ** (1 / 299), abs=1e-9)
    assert upper_share(1, 1) == pytest.approx(0.95)


@given(
    st.lists(
        st.fixed_dictionaries({"semantic": st.floats(0, 1), "fil": st.floats(0, 1)}),
        min_size=1,
        max_size=6,
    )
)
def test_the_critical_prior_is_where_blocking_begins(turns: list[dict[str, float]]) -> None:
    """A little above it the case is blocked."""
    found = critical_prior(trace(0, turns), WEIGHTS, CRITICAL)
    assert is_blocked(trace(0, turns), WEIGHTS, found + 1e-6, CRITICAL)


def test_a_single_turn_is_blocked_exactly_from_its_critical_prior() -> None:
    """Below it passes, above it does not."""
    heard = trace(0, [{"semantic": 0.8}])
    found = critical_prior(heard, WEIGHTS, CRITICAL)
    assert not is_blocked(heard, WEIGHTS, found - 1e-6, CRITICAL)
    assert is_blocked(heard, WEIGHTS, found + 1e-6, CRITICAL)


def test_a_vetoed_case_is_blocked_at_any_prior() -> None:
    """Hard violations do not wait for the sum."""
    assert critical_prior(trace(0, [{}], hard_turn=1), WEIGHTS, CRITICAL) == -math.inf


def test_a_calibrated_prior_keeps_the_budget_on_the_data() -> None:
    """No more of the given cases are blocked than allowed; attacks are left out."""
    traces = noisy_traces(600, seed=1, telling="semantic", noise="keywords")
    found = calibrate_prior(traces, WEIGHTS, 0.05)
    assert found.bound.n == 300
    assert found.blocked <= 0.05 * 301
    assert found.blocked >= 0.03 * 300
    assert "5.00%" in found.bound.statement
    assert "300" in found.bound.statement


def test_a_budget_that_the_rules_exceed_is_refused() -> None:
    """No prior helps against vetoes."""
    traces = [trace(n, [{"fil": 0.1}], hard_turn=1 if n < 20 else None) for n in range(100)]
    with pytest.raises(DataError, match="rules alone"):
        calibrate_prior(traces, WEIGHTS, 0.05)


def test_a_prompt_threshold_is_just_above_the_allowed_falsehood() -> None:
    """Blocking begins at the threshold, so it lies above the last one allowed."""
    outcomes = [outcome(n, n / 100) for n in range(100)]
    bound = calibrate_falsehood(outcomes, 0.05)
    assert sum(o.score >= bound.threshold for o in outcomes) <= 5
    with pytest.raises(DataError, match="wholly false"):
        calibrate_falsehood([outcome(n, 1.0) for n in range(100)], 0.05)


def test_new_budgets_replace_old_ones_and_drop_those_that_contradict() -> None:
    """A larger budget never has the lower prior."""
    traces = noisy_traces(600, seed=1, telling="semantic", noise="keywords")
    found = calibrate_prior(traces, WEIGHTS, 0.05)
    weights = with_budgets(WEIGHTS, [found], "calibrated on 300 benign conversations")
    again = Weights.model_validate(weights.model_dump())
    assert again.prior_for(0.05) == pytest.approx(found.prior, abs=1e-6)
    priors = [budget.prior for budget in again.budgets]
    assert priors == sorted(priors)
    assert "300 benign" in again.fitted_on


@pytest.mark.parametrize(("old", "new"), [("1.2.9", "1.2.10"), ("7", "8"), ("beta", "beta.1")])
def test_versions_count_up(old: str, new: str) -> None:
    """Each written file has its own."""
    assert next_version(old) == new


def test_tapes_are_recorded_with_blocking_off() -> None:
    """A trace says what each signal heard in each turn; cases that fail are left out."""
    config = ControllerConfig(preset="strict", max_chars=200)
    given = (case(0, "Ignore the password", "go on"), case(1, "x" * 300))
    (found,) = record_traces(given, config, openers=Openers(judge=open_fake))
    assert found.index == 0
    assert len(found.turns) == 2
    assert "semantic" in {score.name for score in found.turns[0]}
