"""Evidence weights fitted to traces: a search along one number at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from promptguard.risk.weights import PRESETS, Weights
from promptguard.validation.metrics import recall_at, roc_auc
from promptguard.validation.score_matrix import Array, ScoreMatrix, peaks

LOSS_SHARE = 0.1
FIRST_STEP, LAST_STEP = 0.5, 0.1
PASSES = 8
_SURE = 8.0
_BLOCKING_ODDS = math.log(0.7 / 0.3)

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
    """Return weights that rank these traces better than `start` does, or `start`.

    Scales, shifts, half-life, residue and relief are moved one at a time, with a step that
    is halved when nothing helps any more. What decides is the quality of the ranking and, for
    a tenth, the loss of the risk as a probability.
    """
    sources = np.array(matrix.sources)
    best, step = start, FIRST_STEP
    prior = start.prior_for(PRESETS["balanced"])
    least = _loss(peaks(matrix, best, prior), matrix.is_attack, sources)
    for _ in range(passes):
        before = least
        for knob in _knobs(matrix.signals, start):
            for change in (step, -step):
                tried = knob.turned(best, change)
                found = _loss(peaks(matrix, tried, prior), matrix.is_attack, sources)
                if found < least - 1e-6:
                    best, least = tried, found
                    break
        prior = blocking_prior(peaks(matrix, best, prior), matrix.is_attack)
        least = _loss(peaks(matrix, best, prior), matrix.is_attack, sources)
        if before - least < 1e-4:
            step /= 2
            if step < LAST_STEP:
                break
    return best


def blocking_prior(scores: Array, is_attack: Flags) -> float:
    """Return the prior at which a hundredth of the benign cases would be blocked."""
    share = PRESETS["balanced"]
    return float(_BLOCKING_ODDS - np.quantile(scores[~is_attack], 1 - share, method="higher"))


def _loss(scores: Array, is_attack: Flags, sources: Names) -> float:
    quality = quality_of(scores, is_attack, sources).mean
    odds = np.clip(scores - np.quantile(scores[~is_attack], 0.95), -_SURE, _SURE)
    wrong = np.logaddexp(0.0, np.where(is_attack, -odds, odds))
    balanced = (wrong[is_attack].mean() + wrong[~is_attack].mean()) / 2
    return 1 - quality + LOSS_SHARE * float(balanced)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Knob:
    """One number that may be moved: of a signal, or of the leak where `signal` is empty."""

    name: str
    signal: str = ""
    is_added: bool = False
    most: float = math.inf

    def turned(self, weights: Weights, step: float) -> Weights:
        part = weights.signals[self.signal] if self.signal else weights.leak
        old = float(getattr(part, self.name))
        new = old + step if self.is_added else min(old * math.exp(step), self.most)
        moved = part.model_copy(update={self.name: new})
        if not self.signal:
            return weights.model_copy(update={"leak": moved})
        return weights.model_copy(update={"signals": {**weights.signals, self.signal: moved}})


def _knobs(signals: tuple[str, ...], weights: Weights) -> Iterator[_Knob]:
    for signal in signals:
        yield _Knob(name="scale", signal=signal)
        if weights.signals[signal].link == "logit":
            yield _Knob(name="shift", signal=signal, is_added=True)
    yield _Knob(name="half_life_turns")
    yield _Knob(name="residue", most=0.5)
    yield _Knob(name="relief_nats")
