"""Many traces at once: the evidence of all turns on arrays, for trying weights quickly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from promptguard.risk.weights import Priors, Weights
from promptguard.validation.score_trace import Kind, ScoreTrace

Array = npt.NDArray[np.float64]
# Above any sum of evidence, and finite: quantiles between infinities are undefined.
VETO = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreMatrix:
    """All turns of all traces, one row each; `starts` is the row at which each trace begins.

    `links[row, signal]` is what a scale is multiplied with, 0 where the signal did not score;
    `documents` is -infinity where a turn had no content.
    """

    signals: tuple[str, ...]
    links: Array
    documents: Array
    starts: npt.NDArray[np.int64]
    is_attack: npt.NDArray[np.bool_]
    is_hard: npt.NDArray[np.bool_]
    sources: tuple[str, ...]


def matrix_of(traces: Sequence[ScoreTrace], weights: Weights) -> ScoreMatrix:
    """Lay traces out as arrays, with the signals that weigh something."""
    weighing = (name for name, weight in weights.signals.items() if weight.scale or weight.later)
    scored = {s.name for trace in traces for turn in trace.turns for s in turn.scores}
    signals = tuple(name for name in weighing if name in scored)
    column = {name: place for place, name in enumerate(signals)}
    lengths = [len(trace.turns) for trace in traces]
    turns = [turn for trace in traces for turn in trace.turns]
    links = np.zeros((len(turns), len(signals)))
    for row, turn in enumerate(turns):
        for score in turn.scores:
            if score.name in column:
                links[row, column[score.name]] = _link(weights, score.name, score.score)
    return ScoreMatrix(
        signals=signals,
        links=links,
        documents=np.array([-np.inf if t.document is None else t.document for t in turns]),
        starts=np.cumsum([0, *lengths[:-1]]),
        is_attack=np.array([trace.is_attack for trace in traces], dtype=bool),
        is_hard=np.array([trace.hard_turn is not None for trace in traces], dtype=bool),
        sources=tuple(trace.source for trace in traces),
    )


def peaks(matrix: ScoreMatrix, weights: Weights, priors: Priors) -> Array:
    """Return the highest log-odds that each trace reaches; a vetoed one stands above all."""
    odds = _nats(matrix, weights) + priors.later
    odds[matrix.starts] += priors.first - priors.later
    # `reduceat` needs a turn in every trace; conversations without one become no trace.
    found: Array = np.maximum.reduceat(
        np.maximum(odds, matrix.documents + priors.document), matrix.starts
    )
    found[matrix.is_hard] = VETO
    return found


def kind_peaks(matrix: ScoreMatrix, weights: Weights) -> Mapping[Kind, Array]:
    """Return the most nats of each kind in each trace, -infinity where it has none of the kind.

    The rules' veto counts with the user's turns, whichever of them it was.
    """
    nats = _nats(matrix, weights)
    later = nats.copy()
    later[matrix.starts] = -np.inf
    first = nats[matrix.starts]
    found = {
        Kind.FIRST: first,
        Kind.LATER: np.maximum.reduceat(later, matrix.starts),
        Kind.DOCUMENT: np.maximum.reduceat(matrix.documents, matrix.starts),
    }
    for kind in (Kind.FIRST, Kind.LATER):
        found[kind][matrix.is_hard & np.isfinite(found[kind])] = VETO
    return found


def _nats(matrix: ScoreMatrix, weights: Weights) -> Array:
    chosen = [weights.signals[name] for name in matrix.signals]
    limits = np.array([weight.limit for weight in chosen])
    scaled = matrix.links * np.array([weight.scale_at(2) for weight in chosen])
    first = np.array([weight.scale_at(1) for weight in chosen])
    scaled[matrix.starts] = matrix.links[matrix.starts] * first
    summed: Array = np.clip(scaled, -limits, limits).sum(axis=1)
    return summed


def _link(weights: Weights, signal: str, score: float) -> float:
    """Return what the signal's scale is multiplied with, by the weights' own arithmetic."""
    plain = {"scale": 1.0, "later": None, "limit": np.inf}
    weight = weights.signals[signal].model_copy(update=plain)
    return weight.nats(score)
