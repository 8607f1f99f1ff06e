"""New evidence weights from labelled conversations, kept only where they are better."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from promptguard.conversation import Role
from promptguard.counts import counted
from promptguard.errors import DataError
from promptguard.fil.engine import FrozenInstinct
from promptguard.fil.fitting import (
    FittedSettings,
    LabelledConversation,
    TimedText,
    fit_parameters,
)
from promptguard.risk.weights import PRESETS, BudgetPriors, Weights
from promptguard.turns.walk import SECONDS_BETWEEN_TURNS
from promptguard.validation.calibrate import HAIR, conformal, in_order, least_cases, next_version
from promptguard.validation.dataset import Case
from promptguard.validation.fit import (
    PASSES,
    Flags,
    Names,
    Quality,
    blocking_priors,
    fit,
    fit_memory,
    quality_of,
)
from promptguard.validation.score_matrix import (
    VETO,
    Array,
    ScoreMatrix,
    kind_peaks,
    matrix_of,
    peaks,
)
from promptguard.validation.score_trace import Kind, ScoreTrace
from promptguard.verdict import Mode

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

    DataError says what is missing where there are too few conversations, or too few pairs.
    """
    matrix = matrix_of(traces, present)
    is_attack, sources = matrix.is_attack, np.array(matrix.sources)
    attacks, benign = int(is_attack.sum()), int((~is_attack).sum())
    if min(attacks, benign) < LEAST_OF_EACH:
        raise DataError(
            f"Tuning needs at least {LEAST_OF_EACH} attacks and {LEAST_OF_EACH} benign "
            f"conversations; there are {attacks} and {benign}."
        )
    unseen = _Unseen.empty(len(traces))
    for number, held in enumerate(_folds(traces, folds, seed), start=1):
        unseen.fill(held, traces, present, passes)
        on_fold(number)
    odds = peaks(matrix, present, present.priors_for(PRESETS["balanced"]))
    fitted = fit(matrix, present, passes=passes)
    priors = blocking_priors(matrix, fitted, present)
    memory = fit_memory(traces, fitted, priors, passes=passes)
    fitted = fitted.model_copy(update={"memory": memory})
    on_fold(folds + 1)
    before = quality_of(odds, is_attack, sources)
    after = quality_of(unseen.odds, is_attack, sources)
    return Tuned(
        weights=_finished(fitted, present, matrix, unseen, after, folds),
        before=before,
        after=after,
        certainty=_certainty(odds, unseen.odds, is_attack, sources, seed),
        attacks=attacks,
        benign=benign,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unseen:
    """Each case's log-odds under weights that were fitted without it: whole, and by kind.

    The priors come from the other cases too, so that odds from different folds mean the same.
    """

    odds: Array
    by_kind: dict[Kind, Array]

    @classmethod
    def empty(cls, size: int) -> _Unseen:
        return cls(odds=np.zeros(size), by_kind={kind: np.zeros(size) for kind in Kind})

    def fill(
        self, held: Sequence[int], traces: Sequence[ScoreTrace], present: Weights, passes: int
    ) -> None:
        out = set(held)
        rest = [trace for place, trace in enumerate(traces) if place not in out]
        if not held or len({trace.is_attack for trace in rest}) < 2:
            raise DataError(
                "The conversations belong to too few pairs for some to be held out; give more "
                "pairs, or ask for fewer folds."
            )
        matrix = matrix_of(rest, present)
        weights = fit(matrix, present, passes=passes)
        priors = blocking_priors(matrix, weights, present)
        left = matrix_of([traces[place] for place in held], present)
        self.odds[held] = peaks(left, weights, priors)
        for kind, nats in kind_peaks(left, weights).items():
            self.by_kind[kind][held] = nats + getattr(priors, kind)


def _folds(traces: Sequence[ScoreTrace], folds: int, seed: int) -> Iterator[list[int]]:
    # Sorted before it is shuffled: the order of a set differs from process to process.
    groups = sorted({trace.group for trace in traces})
    random.Random(seed).shuffle(groups)
    fold_of = {group: place % folds for place, group in enumerate(groups)}
    for fold in range(folds):
        yield [place for place, trace in enumerate(traces) if fold_of[trace.group] == fold]


def _certainty(old: Array, new: Array, is_attack: Flags, sources: Names, seed: int) -> float:
    rng = np.random.default_rng(seed)
    attacks, benign = np.flatnonzero(is_attack), np.flatnonzero(~is_attack)
    wins = 0
    for _ in range(ROUNDS):
        # Drawn apart, so that every round has as many of each.
        drawn = np.concatenate([rng.choice(attacks, attacks.size), rng.choice(benign, benign.size)])
        redrawn = is_attack[drawn], sources[drawn]
        wins += quality_of(new[drawn], *redrawn).mean > quality_of(old[drawn], *redrawn).mean
    return wins / ROUNDS


def _finished(
    fitted: Weights,
    present: Weights,
    matrix: ScoreMatrix,
    unseen: _Unseen,
    after: Quality,
    folds: int,
) -> Weights:
    """Return the fitted weights with their budgets, version and provenance."""
    attacks, benign = int(matrix.is_attack.sum()), int((~matrix.is_attack).sum())
    names = sorted(set(matrix.sources))
    budgets = _budgets(fitted, present, matrix, unseen)
    body = fitted.model_dump() | {
        "version": next_version(present.version),
        "budgets": [budget.model_dump() for budget in budgets],
        "fitted_on": (
            f"{counted(attacks, 'attack')} and {counted(benign, 'benign conversation')} from "
            f"{', '.join(names[:12])}{' and others' if len(names) > 12 else ''}; {folds}-fold "
            f"cross-validated AUC {after.auc:.3f}, recall {after.recall_at_1:.3f} at 1 % and "
            f"{after.recall_at_5:.3f} at 5 % false positives"
        ),
    }
    return Weights.model_validate(body)


def _budgets(
    fitted: Weights, present: Weights, matrix: ScoreMatrix, unseen: _Unseen
) -> list[BudgetPriors]:
    """Return the priors of the presets that the data can speak for.

    The odds of the held-out benign cases are relative to their fold's priors; the same distance
    from the priors of the final weights keeps the budget.
    """
    centre = blocking_priors(matrix, fitted, present)
    bar = present.modes.odds_of(Mode.CRITICAL)
    benign = {kind: odds[~matrix.is_attack] for kind, odds in unseen.by_kind.items()}
    known = {kind: odds[np.isfinite(odds)].tolist() for kind, odds in benign.items()}
    found = []
    for share in sorted(PRESETS.values()):
        old = present.priors_for(share)
        bounds = {
            kind: conformal(odds, share)
            for kind, odds in known.items()
            if len(odds) >= least_cases(share)
        }
        # A threshold at the veto's own value means that the rules alone exceed the budget.
        if Kind.FIRST not in bounds or any(b.threshold > VETO / 2 for b in bounds.values()):
            continue
        moved = {
            kind: getattr(centre, kind) + bar - b.threshold - HAIR for kind, b in bounds.items()
        }
        first = moved[Kind.FIRST]
        found.append(
            BudgetPriors(
                share=share,
                first=first,
                later=moved.get(Kind.LATER, first + old.later - old.first),
                document=moved.get(Kind.DOCUMENT, old.document),
            )
        )
    if not found:
        raise DataError("The rules alone block too many of the benign conversations given.")
    return sorted(in_order(found).values(), key=lambda budget: budget.share)


def fit_temporal(
    cases: Sequence[Case], layer: FrozenInstinct, *, max_false_alarms: float = PRESETS["balanced"]
) -> FittedSettings:
    """Fit how the rules look at earlier turns; rates are of the conversations given.

    Messages without a time count as half a minute apart.
    """
    talks = [LabelledConversation(messages=_timed(c), is_attack=c.is_attack) for c in cases]
    return fit_parameters(talks, layer=layer, max_false_alarms=max_false_alarms)


def _timed(case: Case) -> tuple[TimedText, ...]:
    now, found = 0.0, []
    for message in case.messages:
        if message.role is Role.USER:
            now = now + SECONDS_BETWEEN_TURNS if message.timestamp is None else message.timestamp
            found.append(TimedText(text=message.content, timestamp=now))
    return tuple(found)
