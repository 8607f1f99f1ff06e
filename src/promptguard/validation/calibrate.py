"""Thresholds for a false-positive budget, by split-conformal prediction.

The budget is kept on data like that which was given: for the engine by its priors, for
single prompts by the falsehood from which they are blocked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from promptguard.counts import counted
from promptguard.errors import ConfigError, DataError
from promptguard.risk.weights import BudgetPriors, Priors, Weights
from promptguard.validation.compare import binomial_upto
from promptguard.validation.contenders import Outcome
from promptguard.validation.score_trace import Kind, ScoreTrace, is_blocked, nats_by_kind
from promptguard.verdict import Mode

CONFIDENCE = 0.95
# Below the prior that blocks a case, by more than a weights file rounds off.
HAIR = 1e-6
_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformal:
    """A threshold that at most `share` of new benign cases exceed, on average over samples.

    `rank` of the `n` scores, in rising order, is the threshold. With 95 % confidence over the
    sample that was drawn, the share stays below `upper`.
    """

    share: float
    n: int
    rank: int
    threshold: float
    upper: float

    @property
    def statement(self) -> str:
        """What is promised, and on what."""
        return (
            f"At most {self.share:.2%} of benign cases exceed it, on average over samples of "
            f"{self.n} drawn alike; for this sample, below {self.upper:.2%} with 95 % confidence."
        )


def least_cases(share: float) -> int:
    """Return how many benign cases a budget needs at least."""
    return math.ceil(1 / share - 1e-9) - 1


def conformal(scores: Sequence[float], share: float) -> Conformal:
    """Return the threshold for a budget; DataError says how many cases are needed."""
    n = len(scores)
    # A product that should be whole must not be lifted to the next number by its last digit.
    rank = math.ceil((n + 1) * (1 - share) - 1e-9)
    if rank > n or not n:
        raise DataError(
            f"A budget of {share:.2%} needs at least {counted(least_cases(share), 'benign case')}, "
            f"there are {n}; give more data or a larger budget."
        )
    threshold = sorted(scores)[rank - 1]
    return Conformal(share=share, n=n, rank=rank, threshold=threshold, upper=upper_share(n, rank))


def upper_share(n: int, rank: int, confidence: float = CONFIDENCE) -> float:
    """Return the share that the true one stays below, in `confidence` of the samples.

    The share above the rank-th of n scores is Beta(n + 1 - rank, rank); its quantile is found
    by halving, on the binomial sum that equals its distribution function.
    """
    low, high = 0.0, 1.0
    # Sixty halvings go below the last digit of a float.
    for _ in range(60):
        middle = (low + high) / 2
        if binomial_upto(n, n - rank, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedPriors:
    """The priors at which the blocking mode keeps a budget, and what each rests on.

    `bounds` has the kinds of traffic that there were enough benign cases of; the others keep
    their present prior. `blocked` is how many of the `benign` cases given are blocked.
    """

    share: float
    priors: Priors
    bounds: Mapping[Kind, Conformal]
    blocked: int
    benign: int

    @property
    def budget(self) -> BudgetPriors:
        """The point that a weights file takes."""
        return BudgetPriors(share=self.share, **_rounded(self.priors.model_dump()))


def calibrate_priors(
    traces: Sequence[ScoreTrace], weights: Weights, share: float, *, mode: Mode = Mode.CRITICAL
) -> CalibratedPriors:
    """Return the priors under which at most `share` of benign traffic of each kind reach `mode`.

    A conversation counts once for each kind, with its riskiest turn or content of that kind.
    Attacks are left out. DataError where there are too few of every kind, or where the rules'
    veto alone exceeds the budget.
    """
    if mode is Mode.SAFE:
        raise DataError("A policy that blocks from SAFE on blocks everything; no prior can help.")
    bar = weights.modes.odds_of(mode)
    benign = [trace for trace in traces if not trace.is_attack]
    found = [nats_by_kind(trace, weights) for trace in benign]
    by_kind = {kind: [nats[kind] for nats in found if kind in nats] for kind in Kind}
    enough = [kind for kind in Kind if len(by_kind[kind]) >= least_cases(share)]
    # With no kind at all the refusal says how many first turns are missing.
    bounds = {kind: conformal(by_kind[kind], share) for kind in enough or [Kind.FIRST]}
    if any(math.isinf(bound.threshold) for bound in bounds.values()):
        vetoed = sum(trace.hard_turn is not None for trace in benign)
        raise DataError(
            f"The rules alone block {vetoed} of {counted(len(benign), 'benign conversation')}, "
            f"more than a budget of {share:.2%}; no prior can keep it. Look at the rules, or raise "
            "the budget."
        )
    # The case at the threshold is let pass: the promise is about what exceeds it.
    moved = {kind.value: bar - bound.threshold - HAIR for kind, bound in bounds.items()}
    priors = weights.priors_for(share).model_copy(update=moved)
    return CalibratedPriors(
        share=share,
        priors=priors,
        bounds=bounds,
        blocked=sum(is_blocked(trace, weights, priors, bar) for trace in benign),
        benign=len(benign),
    )


def calibrate_falsehood(benign: Sequence[Outcome], share: float) -> Conformal:
    """Return the falsehood above which at most `share` of benign prompts are judged.

    A prompt is blocked from its threshold on, so the threshold is the next number up.
    DataError where there are too few, or where too many are judged wholly false.
    """
    bound = conformal([outcome.score for outcome in benign if not outcome.error], share)
    if bound.threshold >= 1.0:
        raise DataError(
            f"More than {share:.2%} of the benign prompts are judged wholly false; no threshold "
            "can keep the budget."
        )
    return replace(bound, threshold=math.nextafter(bound.threshold, 1.0))


def with_budgets(weights: Weights, found: Sequence[CalibratedPriors], note: str) -> Weights:
    """Return the weights with the calibrated points, and those old ones that still fit in.

    A larger budget never has a lower prior; an old point that would break this goes, and a prior
    that was kept for want of cases is lowered.
    """
    new = in_order(each.budget for each in found)
    kept = dict(new)
    for old in weights.budgets:
        if old.share not in kept and all(_is_in_order(old, each) for each in new.values()):
            kept[old.share] = old
    return weights.model_copy(
        update={
            "budgets": tuple(kept[share] for share in sorted(kept)),
            "version": next_version(weights.version),
            "fitted_on": f"{weights.fitted_on}; {note}",
        }
    )


def in_order(found: Iterable[BudgetPriors]) -> dict[float, BudgetPriors]:
    """Return the points by share; a prior above that of a larger budget is lowered to it."""
    points: dict[float, BudgetPriors] = {}
    above: BudgetPriors | None = None
    for point in sorted(found, key=lambda point: -point.share):
        if above is not None:
            lowest = {kind.value: min(getattr(point, kind), getattr(above, kind)) for kind in Kind}
            point = point.model_copy(update=lowest)
        points[point.share] = above = point
    return points


def _is_in_order(one: BudgetPriors, other: BudgetPriors) -> bool:
    small, large = sorted((one, other), key=lambda budget: budget.share)
    return all(getattr(small, kind) <= getattr(large, kind) for kind in Kind)


def next_version(version: str) -> str:
    """Return the version after this one: its last number raised by one."""
    head, dot, last = version.rpartition(".")
    return f"{head}{dot}{int(last) + 1}" if last.isdecimal() else f"{version}.1"


def weights_to_toml(weights: Weights) -> str:
    """Return weights in the form that `risk/weights.py` reads."""
    # TOML has no null.
    return tomli_w.dumps(_rounded(weights.model_dump(exclude_none=True)))


def write_weights(weights: Weights, path: Path) -> None:
    """Write a weights file; raises ConfigError where that fails."""
    try:
        path.write_text(weights_to_toml(weights), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"Cannot write {path}: {error.strerror}.") from None


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, tuple) else value
