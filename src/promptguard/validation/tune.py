"""New evidence weights from labelled conversations, kept only where they are better."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from promptguard.errors import DataError
from promptguard.risk.weights import PRESETS, Budget, Weights
from promptguard.state import Mode
from promptguard.validation.calibrate import conformal, least_cases, next_version
from promptguard.validation.fit import (
    PASSES,
    Flags,
    Names,
    Quality,
    blocking_prior,
    fit,
    quality_of,
)
from promptguard.validation.score_matrix import VETO, Array, matrix_of, peaks
from promptguard.validation.score_trace import ScoreTrace, totals

FOLDS = 5
LEAST_OF_EACH = 50
ROUNDS = 300
SURE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What tuning came to.

    `before` and `after` are measured on the same conversations, `after` with weights fitted
    without them. `certainty` is the share of redrawn samples in which the new weights are
    better; below 95 % they are not kept.
    """

    weights: Weights
    before: Quality
    after: Quality
    certainty: float
    attacks: int
    benign: int

    @property
    def is_better(self) -> bool:
        """Whether the new weights should be used."""
        return self.after.mean > self.before.mean and self.certainty >= SURE


def tune(
    traces: Sequence[ScoreTrace],
    present: Weights,
    *,
    seed: int = 0,
    folds: int = FOLDS,
    passes: int = PASSES,
    on_fold: Callable[[int], None] = lambda _: None,
) -> Tuned:
    """Fit weights and measure them by cross-validation; conversations of a pair stay together.

    DataError says how many conversations are missing where there are too few.
    """
    _require_enough(traces)
    is_attack = np.array([trace.is_attack for trace in traces])
    sources = np.array([trace.source for trace in traces])
    unseen = np.zeros(len(traces))
    for number, held in enumerate(_folds(traces, folds, seed), start=1):
        unseen[held] = _held_out_odds(traces, held, present, passes)
        on_fold(number)
    odds = _odds(traces, present, present.prior_for(PRESETS["balanced"]))
    fitted = fit(matrix_of(traces, present), present, passes=passes)
    on_fold(folds + 1)
    before, after = quality_of(odds, is_attack, sources), quality_of(unseen, is_attack, sources)
    return Tuned(
        weights=_finished(fitted, present, traces, unseen, after, folds),
        before=before,
        after=after,
        certainty=_certainty(odds, unseen, is_attack, sources, seed),
        attacks=int(is_attack.sum()),
        benign=int((~is_attack).sum()),
    )


def _require_enough(traces: Sequence[ScoreTrace]) -> None:
    attacks = sum(trace.is_attack for trace in traces)
    benign = len(traces) - attacks
    if min(attacks, benign) < LEAST_OF_EACH:
        raise DataError(
            f"Tuning needs at least {LEAST_OF_EACH} attacks and {LEAST_OF_EACH} benign "
            f"conversations; there are {attacks} and {benign}."
        )


def _folds(traces: Sequence[ScoreTrace], folds: int, seed: int) -> Iterator[list[int]]:
    groups = sorted({trace.group for trace in traces})
    random.Random(seed).shuffle(groups)
    fold_of = {group: place % folds for place, group in enumerate(groups)}
    for fold in range(folds):
        yield [place for place, trace in enumerate(traces) if fold_of[trace.group] == fold]


def _held_out_odds(
    traces: Sequence[ScoreTrace], held: Sequence[int], present: Weights, passes: int
) -> Array:
    """Return the held-out cases' odds under weights fitted on the others.

    The prior comes from the others too, so that odds from different folds mean the same.
    """
    out = set(held)
    rest = [trace for place, trace in enumerate(traces) if place not in out]
    matrix = matrix_of(rest, present)
    weights = fit(matrix, present, passes=passes)
    prior = present.prior_for(PRESETS["balanced"])
    prior = blocking_prior(peaks(matrix, weights, prior), matrix.is_attack)
    return _odds([traces[place] for place in held], weights, prior)


def _odds(traces: Sequence[ScoreTrace], weights: Weights, prior: float) -> Array:
    """Return each case's highest log-odds of being an attack, from the ledger itself."""
    return np.array(
        [
            prior + (VETO if trace.hard_turn is not None else max(totals(trace, weights, prior)))
            for trace in traces
        ]
    )


def _certainty(old: Array, new: Array, is_attack: Flags, sources: Names, seed: int) -> float:
    rng = np.random.default_rng(seed)
    attacks, benign = np.flatnonzero(is_attack), np.flatnonzero(~is_attack)
    wins = 0
    for _ in range(ROUNDS):
        drawn = np.concatenate([rng.choice(attacks, attacks.size), rng.choice(benign, benign.size)])
        redrawn = is_attack[drawn], sources[drawn]
        wins += quality_of(new[drawn], *redrawn).mean > quality_of(old[drawn], *redrawn).mean
    return wins / ROUNDS


def _finished(
    fitted: Weights,
    present: Weights,
    traces: Sequence[ScoreTrace],
    unseen: Array,
    after: Quality,
    folds: int,
) -> Weights:
    """Return the fitted weights with their budgets, version and provenance."""
    benign = [place for place, trace in enumerate(traces) if not trace.is_attack]
    attacks = len(traces) - len(benign)
    names = sorted({trace.source for trace in traces})
    budgets = _budgets(fitted, present, traces, unseen[benign].tolist())
    body = fitted.model_dump() | {
        "version": next_version(present.version),
        "budgets": [budget.model_dump() for budget in budgets],
        "fitted_on": (
            f"{attacks} attacks and {len(benign)} benign conversations from "
            f"{', '.join(names[:12])}{' and others' if len(names) > 12 else ''}; {folds}-fold "
            f"cross-validated AUC {after.auc:.3f}, recall {after.recall_at_1:.3f} at 1 % and "
            f"{after.recall_at_5:.3f} at 5 % false positives"
        ),
    }
    return Weights.model_validate(body)


def _budgets(
    fitted: Weights, present: Weights, traces: Sequence[ScoreTrace], unseen: Sequence[float]
) -> list[Budget]:
    """Return the priors of the presets that the data can speak for.

    The odds of the held-out benign cases are relative to their fold's prior; the same distance
    from the prior of the final weights keeps the budget.
    """
    matrix = matrix_of(traces, present)
    scores = peaks(matrix, fitted, present.prior_for(PRESETS["balanced"]))
    top = blocking_prior(scores, matrix.is_attack) + present.modes.odds_of(Mode.CRITICAL)
    bounds = [
        conformal(unseen, share)
        for share in sorted(PRESETS.values())
        if len(unseen) >= least_cases(share)
    ]
    found = [
        Budget(share=bound.share, prior=top - bound.threshold)
        for bound in bounds
        if bound.threshold < VETO / 2
    ]
    if not found:
        raise DataError("The rules alone block too many of the benign conversations given.")
    return found
