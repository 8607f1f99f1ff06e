"""Step 10: fit the evidence weights on conversations the model was not trained on.

    python -m training.fit_evidence .train/data/held_records.jsonl.gz weights.toml

All signals are fitted jointly, so that correlated ones do not count twice: a logistic regression
of "this turn belongs to an attack" on the signals' scores, weights not below zero, drawn towards
a small prior weight where the data says little. A benign conversation gives all its turns, an
attack those from `attack_turn` on; every source and label weighs alike. The budgets are
split-conformal priors that hold for benign single texts and for benign conversations alike.
Step 11 starts from the result.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from promptguard.config import ControllerConfig
from promptguard.risk.weights import SignalWeight, Weights, shipped_weights
from promptguard.validation.calibrate import (
    CalibratedPrior,
    calibrate_prior,
    with_budgets,
    write_weights,
)
from promptguard.validation.dataset import Case, load_dataset
from promptguard.validation.score_trace import ScoreTrace, record_traces
from training.records import at_most

PER_SOURCE, EVEN = 150, 60
PRIOR_WEIGHT, PULL = 0.6, 2e-2
SHARES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
LOGIT = frozenset({"semantic", "context"})
LEVEL = frozenset({"context", "trajectory", "information_gathering", "intent", "behavior"})
# Three or four steps on one subject occur in none of 725 held-out benign conversations and in
# hardly any attack, so their weight cannot be fitted: it is set so that the bundled
# chemistry scenario is SUSPECT in time, and the lower half counts 0.
# Refusals are commoner in the authored attacks than a refusal deserves (the corpus says so), so
# the weight of `response` is set low instead of learning that.
SET = {
    "information_gathering": SignalWeight(kind="level", link="upper", scale=6.0, limit=6.0),
    # The rules are rare and precise.
    "fil": SignalWeight(kind="event", link="linear", scale=4.0, limit=6.0),
    "response": SignalWeight(kind="event", link="linear", scale=0.3, limit=1.0),
}
LIMITS = {"semantic": 8.0, "context": 6.0}


def chosen(cases: Iterable[Case]) -> list[Case]:
    """Keep at most `PER_SOURCE` cases of a source and label."""
    return at_most(cases, PER_SOURCE, lambda case: (case.source, case.is_attack))


def rows_of(
    traces: list[ScoreTrace], starts: dict[int, int], names: list[str]
) -> tuple[np.ndarray, ...]:
    """Return features, labels and weights of the turns that count."""
    features, labels, groups = [], [], []
    for trace in traces:
        first = starts.get(trace.index, len(trace.turns) - 1) if trace.is_attack else 0
        for scores in trace.turns[first:]:
            by_name = {score.name: score.score for score in scores}
            features.append([linked(name, by_name[name]) for name in names])
            labels.append(int(trace.is_attack))
            groups.append((trace.source, trace.is_attack))
    counts = Counter(groups)
    sources = Counter(label for _, label in counts)
    weights = [0.5 / sources[group[1]] / counts[group] for group in groups]
    return np.array(features), np.array(labels), np.array(weights)


def linked(name: str, score: float) -> float:
    """Return a score as the weights file's link sees it."""
    if name not in LOGIT:
        return score
    kept = min(max(score, 1e-6), 1 - 1e-6)
    return math.log(kept / (1 - kept))


def fit(
    features: np.ndarray, labels: np.ndarray, weights: np.ndarray, names: list[str]
) -> np.ndarray:
    """Return one weight per signal, not below zero, and the shift."""
    target = np.full(len(names), PRIOR_WEIGHT)

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        odds = features @ parameters[:-1] + parameters[-1]
        off = parameters[:-1] - target
        value = (weights * (np.logaddexp(0, odds) - labels * odds)).sum() + PULL * (off**2).sum()
        gap = weights * (1 / (1 + np.exp(-odds)) - labels)
        return value, np.append(features.T @ gap + 2 * PULL * off, gap.sum())

    bounds = [(0.0, None)] * len(names) + [(None, None)]
    start = np.append(target, 0.0)
    return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x


def weights_from(names: list[str], found: np.ndarray, old: Weights, note: str) -> Weights:
    """Return the weights file's content."""
    signals = {
        name: SignalWeight(
            kind="level" if name in LEVEL else "event",
            link="logit" if name in LOGIT else "linear",
            scale=round(float(scale), 4),
            shift=round(float(found[-1]), 4) if name == "semantic" else 0.0,
            limit=LIMITS.get(name, 3.0),
        )
        for name, scale in zip(names, found, strict=False)
    }
    signals |= SET | {"judge": old.signals["judge"]}
    return old.model_copy(update={"version": "0.1.0", "fitted_on": note, "signals": signals})


def even(benign: list[ScoreTrace]) -> list[ScoreTrace]:
    """Keep at most `EVEN` of a source, so that no kind of text makes up most of it."""
    return at_most(benign, EVEN, lambda trace: (trace.source, is_talk(trace)))


def is_talk(trace: ScoreTrace) -> bool:
    """Say whether a trace holds more than one turn."""
    return len(trace.turns) > 1


def budget_for(benign: list[ScoreTrace], weights: Weights, share: float) -> CalibratedPrior:
    """Return the stricter of the priors that keep a budget on single texts and on talks.

    What is guarded may be all the one or all the other, so the budget has to hold for both.
    """
    mixed = even(benign)
    talks = [trace for trace in mixed if is_talk(trace)]
    singles = [trace for trace in mixed if not is_talk(trace)]
    found = [calibrate_prior(kind, weights, share) for kind in (singles, talks)]
    return min(found, key=lambda point: point.prior)


def main() -> None:
    """Fit, set the budgets, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    cases = chosen(load_dataset([options.records]).cases)
    starts = {case.index: case.attack_turn for case in cases if case.attack_turn is not None}
    traces = list(record_traces(cases, ControllerConfig(store="memory:"), jobs=options.jobs))
    names = [score.name for score in traces[0].turns[0] if score.name not in SET]
    found = fit(*rows_of(traces, starts, names), names)
    benign = [trace for trace in traces if not trace.is_attack]
    note = (
        f"{len(traces)} held-out authored, permissive and share-alike records "
        f"({len(benign)} benign), none of them seen by the model"
    )
    weights = weights_from(names, found, shipped_weights(), note)
    points = [budget_for(benign, weights, share) for share in SHARES]
    weights = with_budgets(
        weights.model_copy(update={"budgets": (points[0].budget,)}), points, "budgets on the same"
    )
    write_weights(weights, options.out)
    for name, value in zip([*names, "shift"], found, strict=True):
        print(f"{name:24} {value:.3f}")
    for point in points:
        print(point.budget)


if __name__ == "__main__":
    main()
