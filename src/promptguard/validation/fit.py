"""Evidence weights fitted to traces: a search along one number at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from promptguard.risk.ledger import add_turn, total
from promptguard.risk.weights import PRESETS, MemoryWeights, Priors, Weights
from promptguard.state import Ledger
from promptguard.validation.metrics import recall_at, roc_auc
from promptguard.validation.score_matrix import Array, ScoreMatrix, kind_peaks, peaks
from promptguard.validation.score_trace import Kind, ScoreTrace, turn_odds
from promptguard.verdict import Mode

LOSS_SHARE = 0.1
FIRST_STEP, LAST_STEP = 0.5, 0.1
PASSES = 8
LEAST_OF_KIND = 20
LEAST_TURNS = 3
# A few extreme cases, such as vetoed ones, must not make up the whole loss.
_SURE = 8.0

Flags = npt.NDArray[np.bool_]
Names = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How well attacks rank above benign cases, averaged over the attacks' sources."""

    auc: float
    recall_at_1: float
    recall_at_5: float

    @property
    def mean(self) -> float:
        """The one number that is compared."""
        return (self.auc + self.recall_at_1 + self.recall_at_5) / 3


def quality_of(scores: Array, is_attack: Flags, sources: Names) -> Quality:
    """Return the quality of a ranking; each attack source counts the same."""
    benign = np.sort(scores[~is_attack])
    attacks = [scores[is_attack & (sources == name)] for name in np.unique(sources[is_attack])]
    return Quality(
        auc=float(np.mean([roc_auc(attack, benign) or 0.0 for attack in attacks])),
        recall_at_1=float(np.mean([recall_at(attack, benign, 0.01) or 0.0 for attack in attacks])),
        recall_at_5=float(np.mean([recall_at(attack, benign, 0.05) or 0.0 for attack in attacks])),
    )


def fit(matrix: ScoreMatrix, start: Weights, *, passes: int = PASSES) -> Weights:
    """Return weights whose scales rank these traces better than those of `start`, or `start`.

    Scales are moved one at a time, with a step that is halved when nothing helps any more. What
    decides is the quality of the ranking and, for a tenth, the loss of the risk as a probability.
    """
    sources = np.array(matrix.sources)

    def loss(weights: Weights, priors: Priors) -> float:
        return _loss(peaks(matrix, weights, priors), matrix.is_attack, sources)

    best, step = start, FIRST_STEP
    priors = blocking_priors(matrix, best, start)
    least = loss(best, priors)
    for _ in range(passes):
        before = least
        for (signal, name), change in product(_scales(matrix, start), (step, -step)):
            tried = _rescaled(best, signal, name, change)
            found = loss(tried, priors)
            # A gain in the last digits is rounding.
            if found < least - 1e-6:
                best, least = tried, found
        priors = blocking_priors(matrix, best, start)
        # Under other priors the same weights have another loss.
        least = loss(best, priors)
        if before - least < 1e-4:
            step /= 2
            if step < LAST_STEP:
                break
    return best


def blocking_priors(matrix: ScoreMatrix, weights: Weights, present: Weights) -> Priors:
    """Return the priors at which a hundredth of the benign traffic of each kind is blocked.

    A kind with hardly any benign cases keeps its present distance from the first turn's prior;
    that of documents, whose weights are not fitted here, keeps its value.
    """
    share = PRESETS["balanced"]
    old = present.priors_for(share)
    bar = present.modes.odds_of(Mode.CRITICAL)
    by_kind = kind_peaks(matrix, weights)

    def prior(kind: Kind, otherwise: float) -> float:
        nats = by_kind[kind][~matrix.is_attack]
        nats = nats[np.isfinite(nats)]
        if nats.size < LEAST_OF_KIND:
            return otherwise
        # The next case above and no value between two, so that the share is not exceeded.
        return float(bar - np.quantile(nats, 1 - share, method="higher"))

    first = prior(Kind.FIRST, old.first)
    return Priors(
        first=first,
        later=prior(Kind.LATER, first + old.later - old.first),
        document=prior(Kind.DOCUMENT, old.document),
    )


def fit_memory(
    traces: Sequence[ScoreTrace], weights: Weights, priors: Priors, *, passes: int = PASSES
) -> MemoryWeights:
    """Return the half-lives under which the end of a conversation says best what it was.

    Measured by the loss of the accumulated risk after the last turn, on conversations of three
    turns and more; without such conversations of both labels the present ones stay.
    """
    talks = [
        (trace, turn_odds(trace, weights, priors), [turn.at_s for turn in trace.turns])
        for trace in traces
        if len(trace.turns) >= LEAST_TURNS
    ]
    is_attack = np.array([trace.is_attack for trace, _, _ in talks], dtype=bool)
    best = weights.memory
    if min(is_attack.sum(), (~is_attack).sum()) < LEAST_OF_KIND:
        return best

    def loss(memory: MemoryWeights) -> float:
        ends = [_accumulated(odds, times, memory) for _, odds, times in talks]
        return _balanced_loss(np.array(ends), is_attack)

    least, step = loss(best), FIRST_STEP
    for _ in range(passes):
        before = least
        for name in ("half_life_turns", "half_life_s"):
            for change in (step, -step):
                moved = float(getattr(best, name)) * math.exp(change)
                tried = best.model_copy(update={name: moved})
                found = loss(tried)
                if found < least - 1e-6:
                    best, least = tried, found
                    break
        if before - least < 1e-4:
            break
    return best


def _accumulated(odds: Sequence[float], times: Sequence[float], memory: MemoryWeights) -> float:
    """Return the log-odds of the accumulated risk after the last turn."""
    ledger, before = Ledger(), times[0]
    for turn, (own, at_s) in enumerate(zip(odds, times, strict=True), start=1):
        ledger = add_turn(ledger, turn, (), own, memory, at_s - before)
        before = at_s
    return memory.floor + total(ledger)


def _loss(scores: Array, is_attack: Flags, sources: Names) -> float:
    quality = quality_of(scores, is_attack, sources).mean
    odds = scores - np.quantile(scores[~is_attack], 0.95)
    return 1 - quality + LOSS_SHARE * _balanced_loss(odds, is_attack)


def _balanced_loss(odds: Array, is_attack: Flags) -> float:
    kept = np.clip(odds, -_SURE, _SURE)
    wrong = np.logaddexp(0.0, np.where(is_attack, -kept, kept))
    return float(wrong[is_attack].mean() + wrong[~is_attack].mean()) / 2


def _scales(matrix: ScoreMatrix, weights: Weights) -> list[tuple[str, str]]:
    """Return the scales that may be moved: of every turn, and of later turns where they differ."""
    return [
        (signal, name)
        for signal in matrix.signals
        for name in ("scale", "later")
        if getattr(weights.signals[signal], name)
    ]


def _rescaled(weights: Weights, signal: str, name: str, change: float) -> Weights:
    old = weights.signals[signal]
    before = float(getattr(old, name))
    # Scales are positive and differ in size, so that they move by factors.
    scale = before * math.exp(change)
    # A score is at most 1: beyond its limit a linear scale would only blur it to yes and no.
    scale = min(scale, max(old.limit, before)) if old.link == "linear" else scale
    moved = old.model_copy(update={name: scale})
    return weights.model_copy(update={"signals": {**weights.signals, signal: moved}})
