"""Thresholds for a false-positive budget: the engine's prior, or a prompt's falsehood."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from promptguard.errors import DataError
from promptguard.risk.weights import Budget, Weights
from promptguard.state import Mode
from promptguard.validation.conformal import Conformal, conformal
from promptguard.validation.outcome import Outcome
from promptguard.validation.tape import Tape, critical_prior, is_blocked


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedPrior:
    """The prior at which the blocking mode keeps a budget, and what that rests on.

    `blocked` is how many of the benign conversations given are blocked under it.
    """

    prior: float
    bound: Conformal
    blocked: int

    @property
    def budget(self) -> Budget:
        """The point that a weights file takes."""
        return Budget(share=self.bound.share, prior=round(self.prior, 6))


def calibrate_prior(
    tapes: Sequence[Tape], weights: Weights, share: float, *, mode: Mode = Mode.CRITICAL
) -> CalibratedPrior:
    """Return the prior under which at most `share` of benign conversations reach `mode`.

    Attacks are left out. DataError where there are too few, or where the rules' veto alone
    exceeds the budget.
    """
    start = dict(weights.modes.starts())[mode]
    benign = [tape for tape in tapes if not tape.is_attack]
    bound = conformal([-critical_prior(tape, weights, start) for tape in benign], share)
    if math.isinf(bound.threshold):
        vetoed = sum(tape.hard_turn is not None for tape in benign)
        raise DataError(
            f"The rules alone block {vetoed} of {len(benign)} benign conversations, more than a "
            f"budget of {share:.2%}; no prior can keep it. Look at the rules, or raise the budget."
        )
    # Just below the prior that blocks the case at the threshold.
    prior = -bound.threshold - 1e-6
    blocked = sum(is_blocked(tape, weights, prior, start) for tape in benign)
    return CalibratedPrior(prior=prior, bound=bound, blocked=blocked)


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
    return Conformal(
        share=bound.share,
        n=bound.n,
        rank=bound.rank,
        threshold=math.nextafter(bound.threshold, 1.0),
        upper=bound.upper,
    )


def with_budgets(weights: Weights, found: Sequence[CalibratedPrior], note: str) -> Weights:
    """Return the weights with the calibrated points, and those old ones that still fit in.

    A larger budget never has the lower prior; an old point that would break this goes.
    """
    new = {each.bound.share: each.budget for each in found}
    kept = dict(new)
    for old in weights.budgets:
        fits = all((old.share < b.share) == (old.prior <= b.prior) for b in new.values())
        if old.share not in kept and fits:
            kept[old.share] = old
    return weights.model_copy(
        update={
            "budgets": tuple(kept[share] for share in sorted(kept)),
            "version": next_version(weights.version),
            "fitted_on": f"{weights.fitted_on}; {note}",
        }
    )


def next_version(version: str) -> str:
    """Return the version after this one: its last number raised by one."""
    head, dot, last = version.rpartition(".")
    return f"{head}{dot}{int(last) + 1}" if last.isdigit() else f"{version}.1"
