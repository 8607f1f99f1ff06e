"""How several evaluations of one layer become one: named reducers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from promptguard.core.layers import mean_of, weighted_mean
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.errors import ConfigError
from promptguard.registry import Registry

VOTE_ABOVE = 0.6

Evaluations = Mapping[str, Neutrosophic]
Weights = Mapping[str, float]
Reducer = Callable[[Evaluations, Weights], Neutrosophic]

MERGES: Registry[Reducer] = Registry("ensemble strategy")


def merge(strategy: str, evaluations: Evaluations, weights: Weights | None = None) -> Neutrosophic:
    """Merge at least one value per evaluation type with the reducer called `strategy`.

    Raises ConfigError for an unknown strategy or where there is nothing to merge.
    """
    reducer = MERGES.get(strategy)
    if not evaluations:
        raise ConfigError("There is nothing to merge; give at least one evaluation.")
    return reducer(evaluations, weights or {})


@MERGES.register("max_falsehood")
def max_falsehood(evaluations: Evaluations, _weights: Weights) -> Neutrosophic:
    """Return the worst of each component: least truth, most doubt, most falsehood."""
    values = evaluations.values()
    return Neutrosophic(
        min(value.truth for value in values),
        max(value.indeterminacy for value in values),
        max(value.falsehood for value in values),
    )


@MERGES.register("average")
def average(evaluations: Evaluations, _weights: Weights) -> Neutrosophic:
    """Return the mean of each component."""
    return mean_of(tuple(evaluations.values()))


@MERGES.register("voting")
def voting(evaluations: Evaluations, _weights: Weights) -> Neutrosophic:
    """Return the mean, with the highest falsehood where at least half find F > 0.6.

    Exactly half is enough: one of two carries the vote.
    """
    mean = mean_of(tuple(evaluations.values()))
    votes = [value.falsehood for value in evaluations.values() if value.falsehood > VOTE_ABOVE]
    # The published rule; of two evaluations one therefore decides.
    carried = len(votes) >= len(evaluations) / 2
    return Neutrosophic(mean.truth, mean.indeterminacy, max(votes) if carried else mean.falsehood)


@MERGES.register("weighted")
def weighted(evaluations: Evaluations, weights: Weights) -> Neutrosophic:
    """Return the mean weighted per evaluation type.

    Raises ConfigError where a type has no weight, a weight is negative, or all are zero.
    """
    missing = sorted(set(evaluations) - set(weights))
    if missing:
        raise ConfigError(f"No weight for {', '.join(missing)}; set weights for every type.")
    chosen = tuple(float(weights[name]) for name in evaluations)
    if not all(math.isfinite(weight) and weight >= 0 for weight in chosen):
        raise ConfigError("Weights must be finite and not negative.")
    if not any(chosen):
        raise ConfigError("All weights are zero; give at least one evaluation type a weight.")
    scale = max(chosen)  # very great weights must not overflow when summed
    return weighted_mean(tuple(evaluations.values()), tuple(w / scale for w in chosen))
