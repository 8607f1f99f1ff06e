"""Weights are fitted on labelled conversations and kept only where they are better."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled import noisy_traces, trace

from promptguard.errors import DataError
from promptguard.risk.weights import Priors, Weights, load_weights, shipped_weights
from promptguard.validation.calibrate import weights_to_toml, write_weights
from promptguard.validation.fit import fit, fit_memory, quality_of
from promptguard.validation.score_matrix import VETO, kind_peaks, matrix_of, peaks
from promptguard.validation.score_trace import Kind, is_blocked, nats_by_kind, turn_odds
from promptguard.validation.tune import tune
from promptguard.verdict import Mode

SHIPPED = shipped_weights()
NAMES = ("semantic", "context", "fil", "keywords")
PRIORS = st.builds(
    Priors, first=st.floats(-6, 2), later=st.floats(-6, 2), document=st.floats(-6, 2)
)
TURN = st.dictionaries(st.sampled_from((*NAMES, "document")), st.floats(0, 1), max_size=5)


def misled() -> Weights:
    """Return weights that listen to noise and hardly to what tells."""
    signals = dict(SHIPPED.signals)
    signals["fil"] = signals["fil"].model_copy(update={"scale": 0.2, "later": None})
    signals["keywords"] = signals["keywords"].model_copy(
        update={"scale": 3.0, "later": None, "limit": 8.0}
    )
    return SHIPPED.model_copy(update={"signals": signals})


@settings(max_examples=150)
@given(st.lists(st.lists(TURN, min_size=1, max_size=8), min_size=1, max_size=4), PRIORS)
def test_the_arrays_are_the_arithmetic_of_the_judge(
    talks: list[list[dict[str, float]]], priors: Priors
) -> None:
    """Arrays and single turns agree, so that a fit means what it says."""
    traces = [trace(index, turns) for index, turns in enumerate(talks)]
    found = peaks(matrix_of(traces, SHIPPED), SHIPPED, priors)
    expected = [max(turn_odds(each, SHIPPED, priors)) for each in traces]
    assert found == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.lists(TURN, min_size=1, max_size=5), min_size=1, max_size=4))
def test_the_kinds_of_the_arrays_are_those_of_a_trace(talks: list[list[dict[str, float]]]) -> None:
    """A kind that a case does not have is minus infinity."""
    traces = [trace(index, turns) for index, turns in enumerate(talks)]
    found = kind_peaks(matrix_of(traces, SHIPPED), SHIPPED)
    for place, each in enumerate(traces):
        nats = nats_by_kind(each, SHIPPED)
        for kind in Kind:
            assert found[kind][place] == pytest.approx(nats.get(kind, -np.inf), abs=1e-9)


def test_a_vetoed_trace_ranks_above_all() -> None:
    """The rules' veto is the strongest word."""
    traces = [trace(0, [{"fil": 1.0}]), trace(1, [{"fil": 0.0}], hard_turn=1)]
    priors = Priors(first=-3.0, later=-3.0, document=-3.0)
    assert peaks(matrix_of(traces, SHIPPED), SHIPPED, priors)[1] == VETO


def test_a_longer_memory_is_fitted_where_attacks_come_early() -> None:
    """Where calm turns follow the attack, what was shown must last to the end."""
    traces = [
        trace(n, [{"semantic": 0.999 if n % 2 else 0.05}, *[{"semantic": 0.05}] * 5],
              is_attack=bool(n % 2))
        for n in range(60)
    ]  # fmt: skip
    short = SHIPPED.memory.model_copy(update={"half_life_turns": 3.0})
    weights = SHIPPED.model_copy(update={"memory": short})
    found = fit_memory(traces, weights, weights.priors_for(0.01))
    assert found.half_life_turns > short.half_life_turns
    few = fit_memory(traces[:10], weights, weights.priors_for(0.01))
    assert few == short


def test_quality_counts_each_attack_source_the_same() -> None:
    """A perfect ranking is 1 in every part."""
    scores = np.array([3.0, 3.0, 0.0, 0.0])
    quality = quality_of(scores, np.array([1, 1, 0, 0], dtype=bool), np.array(["a", "b", "c", "c"]))
    assert quality.mean == 1.0


def test_a_fit_learns_what_tells() -> None:
    """Noise loses weight against the signal that tells attacks apart."""
    traces = noisy_traces(400, seed=2, telling="fil", noise="keywords")
    before = misled()
    after = fit(matrix_of(traces, before), before, passes=4)
    ratio = [w.signals["fil"].scale / w.signals["keywords"].scale for w in (before, after)]
    assert ratio[1] > 2 * ratio[0]


def test_better_weights_are_found_and_can_be_loaded(tmp_path: Path) -> None:
    """The written file is one that the engine reads, and it says what it was fitted on."""
    traces = noisy_traces(400, seed=2, telling="fil", noise="keywords")
    tuned = tune(traces, misled(), folds=3, passes=3)
    assert tuned.is_better
    assert tuned.after.mean > tuned.before.mean
    assert tuned.certainty >= 0.95
    path = tmp_path / "w.toml"
    write_weights(tuned.weights, path)
    loaded = load_weights(path)
    assert loaded.version != SHIPPED.version
    assert "200 attacks and 200 benign" in loaded.fitted_on
    assert {budget.share for budget in loaded.budgets} == {0.01, 0.1}
    assert loaded.priors_for(0.1).first > loaded.priors_for(0.01).first


def test_a_result_that_is_not_better_is_refused() -> None:
    """Where the signals say nothing, no weights are better beyond chance."""
    rng = np.random.default_rng(0)
    traces = [
        trace(n, [{"fil": float(rng.random())}], is_attack=bool(n % 2), group=str(n))
        for n in range(200)
    ]
    assert not tune(traces, SHIPPED, folds=3, passes=2).is_better


def test_tuning_is_the_same_each_time() -> None:
    """A seed fixes the folds and the draws."""
    traces = noisy_traces(120, seed=5, telling="fil", noise="keywords")
    first, second = (tune(traces, misled(), folds=3, passes=1, seed=1) for _ in range(2))
    assert first == second


def test_too_little_data_is_refused_with_the_number_needed() -> None:
    """Fifty of each is the least."""
    with pytest.raises(DataError, match="at least 50"):
        tune(noisy_traces(60, seed=1, telling="fil", noise="keywords"), SHIPPED)


@pytest.mark.parametrize("pairs", ["x", "xyz"])
def test_too_few_pairs_are_refused(pairs: str) -> None:
    """What belongs together stays together, so that a part may be left with nothing."""
    traces = [
        replace(each, group=pairs[each.index % len(pairs)])
        for each in noisy_traces(120, seed=1, telling="fil", noise="keywords")
    ]
    with pytest.raises(DataError, match="too few pairs"):
        tune(traces, SHIPPED, passes=1)


def test_a_tuned_budget_is_kept_where_cases_are_alike() -> None:
    """Those that stand at the threshold together pass together."""
    traces = [
        trace(n, [{"fil": 0.9 if n % 2 else 0.5 if n < 40 else 0.1}], is_attack=bool(n % 2))
        for n in range(400)
    ]
    tuned = tune(traces, SHIPPED, folds=3, passes=2)
    priors = tuned.weights.priors_for(0.01)
    bar = tuned.weights.modes.odds_of(Mode.CRITICAL)
    assert sum(is_blocked(each, tuned.weights, priors, bar) for each in traces[::2]) <= 2


def test_a_tuned_prior_without_cases_is_not_above_that_of_a_larger_budget() -> None:
    """A few documents speak for a large budget alone; the small one must not be the laxer."""
    traces = [
        replace(each, turns=tuple(replace(turn, document=4.0) for turn in each.turns))
        if each.index < 60 and not each.is_attack
        else each
        for each in noisy_traces(400, seed=2, telling="fil", noise="keywords")
    ]
    small, large = tune(traces, SHIPPED, folds=3, passes=1).weights.budgets
    assert (small.share, large.share) == (0.01, 0.1)
    assert small.document <= large.document


def test_weights_survive_being_written(tmp_path: Path) -> None:
    """Whatever the provenance says, the file reads back equal."""
    odd = SHIPPED.model_copy(update={"fitted_on": 'a "quoted" \\ name,\n\x7f 日本'})
    path = tmp_path / "w.toml"
    path.write_text(weights_to_toml(odd), encoding="utf-8")
    assert load_weights(path) == odd
