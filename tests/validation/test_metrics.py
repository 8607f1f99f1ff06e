"""The measures agree with scikit-learn and with arithmetic done by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled import case, outcome
from sklearn import metrics as oracle
from sklearn.calibration import calibration_curve

from promptguard.runs.intervals import macro, measure
from promptguard.validation.groups import acceptance_of, group_of, macro_of
from promptguard.validation.metrics import (
    Redrawn,
    calibration_error,
    recall_at,
    reliability,
    roc_auc,
    roc_points,
    threshold_at,
)

SCORES = st.lists(st.integers(0, 20).map(lambda n: n / 20), min_size=1, max_size=60)


@given(SCORES, SCORES)
def test_auc_is_scikit_learns(attack: list[float], benign: list[float]) -> None:
    """Ties included."""
    found = roc_auc(np.array(attack), np.sort(np.array(benign)))
    truth = [1] * len(attack) + [0] * len(benign)
    assert found == pytest.approx(oracle.roc_auc_score(truth, attack + benign))


@given(SCORES, SCORES)
def test_roc_points_are_scikit_learns(attack: list[float], benign: list[float]) -> None:
    """Every distinct score gives one point."""
    truth = [1] * len(attack) + [0] * len(benign)
    across, up, _ = oracle.roc_curve(truth, attack + benign, drop_intermediate=False)
    found = roc_points(np.array(attack), np.array(benign))
    assert np.allclose(found, np.stack([across, up], axis=1))


@given(SCORES, SCORES, st.sampled_from([0.01, 0.05, 0.2]))
def test_recall_at_a_rate_is_the_best_point_within_it(
    attack: list[float], benign: list[float], share: float
) -> None:
    """No threshold keeps the budget and catches more."""
    truth = [1] * len(attack) + [0] * len(benign)
    across, up, _ = oracle.roc_curve(truth, attack + benign, drop_intermediate=False)
    best = max(y for x, y in zip(across, up, strict=True) if x <= share + 1e-12)
    assert recall_at(np.array(attack), np.sort(np.array(benign)), share) == pytest.approx(best)


@given(SCORES, st.floats(0.001, 0.5))
def test_a_threshold_keeps_its_budget(benign: list[float], share: float) -> None:
    """At most the stated share lies above."""
    ordered = np.sort(np.array(benign))
    assert (ordered > threshold_at(ordered, share)).mean() <= share


def test_an_empty_side_has_no_measure() -> None:
    """Nothing is made up where there is nothing to measure."""
    none = np.zeros(0)
    some = np.array([0.5])
    assert roc_auc(none, some) is roc_auc(some, none) is None
    assert recall_at(none, some, 0.01) is None
    assert roc_points(none, some) == ()
    assert calibration_error(reliability(none, none.astype(bool))) is None


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=80))
def test_calibration_error_follows_scikit_learns_curve(pairs: list[tuple[float, bool]]) -> None:
    """The bins' means are those of `calibration_curve`."""
    scores = np.array([score for score, _ in pairs])
    truth = np.array([is_attack for _, is_attack in pairs])
    bins = reliability(scores, truth)
    # scikit-learn puts a score on an edge into the lower bin; such data says nothing here.
    if np.any(np.isclose(scores * 10, np.round(scores * 10))):
        return
    share, said = calibration_curve(truth, scores, n_bins=10)
    assert [each.mean_score for each in bins] == pytest.approx(list(said))
    assert [each.attack_share for each in bins] == pytest.approx(list(share))
    weights = np.array([each.count for each in bins]) / len(pairs)
    assert calibration_error(bins) == pytest.approx(float(np.sum(weights * np.abs(share - said))))


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=50))
def test_decisions_are_counted_as_scikit_learn_counts(rows: list[tuple[bool, float]]) -> None:
    """Recall, precision, F1 and accuracy, where both sides are there."""
    judged = [(case(n, is_attack=a), outcome(n, s)) for n, (a, s) in enumerate(rows)]
    truth = [is_attack for is_attack, _ in rows]
    said = [score >= 0.7 for _, score in rows]
    benign = np.array([s for a, s in rows if not a])
    group = group_of("g", judged, Redrawn(benign, seed=0, rounds=5))
    assert group.accuracy.value == pytest.approx(oracle.accuracy_score(truth, said))
    if any(truth):
        assert group.recall.value == pytest.approx(oracle.recall_score(truth, said))
    if any(truth) and not all(truth):
        assert group.f1.value == pytest.approx(oracle.f1_score(truth, said))
        false_rate = sum(s and not t for s, t in zip(said, truth, strict=True)) / benign.size
        assert group.false_positive_rate.value == pytest.approx(false_rate)
        if any(said):
            assert group.precision.value == pytest.approx(oracle.precision_score(truth, said))


def test_a_group_of_one_label_has_no_precision() -> None:
    """A source of attacks alone cannot be precise."""
    judged = [(case(n, is_attack=True), outcome(n, 0.9)) for n in range(4)]
    group = group_of("g", judged, Redrawn(np.array([0.1, 0.2]), seed=0, rounds=20))
    assert group.precision.value is None
    assert group.auc.value == 1.0
    assert group.auc_within.value is None


def test_macro_counts_each_source_the_same() -> None:
    """A large source does not drown a small one."""
    large = [(case(n, is_attack=True, source="l"), outcome(n, 0.9)) for n in range(90)]
    small = [(case(n, is_attack=True, source="m"), outcome(n, 0.1)) for n in range(10)]
    calm = [(case(n, source="b"), outcome(n, 0.5)) for n in range(20)]
    pool = Redrawn(np.full(20, 0.5), seed=0, rounds=20)
    found = macro_of([large, small, calm], pool)
    assert found.auc.value == pytest.approx(0.5)
    assert found.recall_at_1.value == pytest.approx(0.5)
    assert found.recall.value == pytest.approx(0.5)
    assert found.false_positive_rate.value == 0.0


def test_auc_within_a_source_uses_its_own_benign_cases() -> None:
    """Matched twins are held against each other, not against the pool."""
    judged = [
        (case(n, is_attack=bool(n % 2)), outcome(n, 0.6 if n % 2 else 0.5)) for n in range(60)
    ]
    pool = Redrawn(np.full(50, 0.9), seed=0, rounds=20)
    group = group_of("g", judged, pool)
    assert group.auc_within.value == 1.0
    assert group.auc.value == 0.0


def test_over_defence_counts_hard_negatives_only() -> None:
    """Innocent look-alikes that pass."""
    hard = [
        (case(n, category="benign_hard_negative"), outcome(n, 0.9 if n == 0 else 0.1))
        for n in range(4)
    ]
    plain = [(case(n + 4), outcome(n + 4, 0.9)) for n in range(4)]
    group = group_of("g", hard + plain, Redrawn(np.full(8, 0.1), seed=0, rounds=20))
    assert group.over_defence_accuracy.value == pytest.approx(0.75)


def test_the_specified_names_are_measured() -> None:
    """Manipulative accuracy, extractive recall, reciprocal false positives, overall accuracy."""
    judged = [
        (case(0, is_attack=True, category="jailbreak"), outcome(0, 0.9)),
        (case(1, is_attack=True, category="indirect_injection"), outcome(1, 0.1)),
        (case(2, is_attack=True, category="extraction"), outcome(2, 0.9)),
        (case(3, is_attack=True, label="extractive", category=""), outcome(3, 0.9)),
        (case(4, is_attack=True, category="harmful_request"), outcome(4, 0.9)),
        (case(5, label="reciprocal"), outcome(5, 0.9)),
        (case(6), outcome(6, 0.1)),
    ]
    found = acceptance_of(judged, Redrawn(np.array([0.1]), seed=0, rounds=20))
    assert found.manipulative_accuracy.value == pytest.approx(1 / 2)
    assert found.extractive_recall.value == pytest.approx(1.0)
    assert found.reciprocal_false_positives.value == pytest.approx(1 / 2)
    assert found.overall_accuracy.value == pytest.approx(5 / 7)


def test_intervals_are_seeded_and_hold_the_value() -> None:
    """The same seed gives the same interval, which is about as wide as theory says."""
    rng = np.random.default_rng(1)
    attack, benign = rng.normal(1, 1, 400), rng.normal(0, 1, 400)
    first, second = (
        measure(*Redrawn(benign, seed=7, rounds=200).ranking(attack).auc) for _ in range(2)
    )
    assert first == second
    assert first.low is not None
    assert first.high is not None
    assert first.value is not None
    assert first.low < first.value < first.high
    assert 0.03 < first.high - first.low < 0.10


def test_a_share_drawn_again_spreads_as_a_share_does() -> None:
    """The interval of 50 in 100 is about 0.4 to 0.6."""
    drawn = Redrawn(np.zeros(1), seed=0, rounds=4000).hits(50, 100) / 100
    found = measure(0.5, drawn)
    assert found.low == pytest.approx(0.40, abs=0.02)
    assert found.high == pytest.approx(0.60, abs=0.02)


def test_macro_of_nothing_is_nothing() -> None:
    """No groups, no mean."""
    assert macro([(None, np.zeros(0))]).value is None
