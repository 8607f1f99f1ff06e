"""Weights are fitted on labelled conversations and kept only where they are better."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled import noisy_traces, trace

from promptguard.errors import DataError
from promptguard.risk.weights import Weights, load_weights, shipped_weights
from promptguard.validation.calibrate import weights_to_toml, write_weights
from promptguard.validation.fit import fit, quality_of
from promptguard.validation.score_matrix import VETO, matrix_of, peaks, running_sums
from promptguard.validation.score_trace import totals
from promptguard.validation.tune import tune

SHIPPED = shipped_weights()
NAMES = ("semantic", "context", "fil", "trajectory")
TURN = st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1), max_size=4)


def misled() -> Weights:
    """Return weights that listen to noise and hardly to what tells."""
    signals = dict(SHIPPED.signals)
    signals["fil"] = signals["fil"].model_copy(update={"scale": 0.2})
    signals["keywords"] = signals["keywords"].model_copy(update={"scale": 3.0})
    return SHIPPED.model_copy(update={"signals": signals})


@settings(max_examples=150)
@given(st.lists(st.lists(TURN, min_size=1, max_size=8), min_size=1, max_size=4), st.floats(-6, 2))
def test_the_quick_replay_is_the_ledger(talks: list[list[dict[str, float]]], prior: float) -> None:
    """Arrays and ledger agree turn by turn, so that a fit means what it says."""
    traces = [trace(index, turns) for index, turns in enumerate(talks)]
    matrix = matrix_of(traces, SHIPPED)
    for block in matrix.blocks:
        sums = running_sums(block, matrix.signals, SHIPPED, prior)
        for row, place in enumerate(block.places):
            assert sums[row] == pytest.approx(totals(traces[place], SHIPPED, prior), abs=1e-9)


def test_a_vetoed_tape_ranks_above_all() -> None:
    """The rules' veto is the strongest word."""
    traces = [trace(0, [{"fil": 1.0}]), trace(1, [{"fil": 0.0}], hard_turn=1)]
    assert peaks(matrix_of(traces, SHIPPED), SHIPPED, -3.0)[1] == VETO


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
    assert {budget.share for budget in loaded.budgets} == {0.01, 0.05}
    assert loaded.prior_for(0.05) > loaded.prior_for(0.01)


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


def test_weights_survive_being_written(tmp_path: Path) -> None:
    """Whatever the provenance says, the file reads back equal."""
    odd = SHIPPED.model_copy(update={"fitted_on": 'a "quoted" \\ name,\n\x7f 日本'})
    path = tmp_path / "w.toml"
    path.write_text(weights_to_toml(odd), encoding="utf-8")
    assert load_weights(path) == odd
