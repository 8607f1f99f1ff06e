"""Many traces at once: the ledger's arithmetic on arrays, for trying weights quickly.

Equal to `risk.ledger` as long as no more entries are listed than it keeps one by one; the
numbers that are published come from the ledger itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from promptguard.risk.ledger import MATERIAL_NATS
from promptguard.risk.weights import LeakWeights, SignalWeight, Weights
from promptguard.validation.score_trace import ScoreTrace

Array = npt.NDArray[np.float64]
VETO = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBlock:
    """Traces of one length: `scores[case, turn, signal]`, and where each stands in the whole."""

    places: npt.NDArray[np.int64]
    scores: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreMatrix:
    """All traces, in blocks of equal length; `signals` names the last axis."""

    signals: tuple[str, ...]
    blocks: tuple[ScoreBlock, ...]
    is_attack: npt.NDArray[np.bool_]
    is_hard: npt.NDArray[np.bool_]
    sources: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many traces there are."""
        return len(self.sources)


def matrix_of(traces: Sequence[ScoreTrace], weights: Weights) -> ScoreMatrix:
    """Lay traces out as arrays, with the signals that have a weight."""
    scored = dict.fromkeys(s.name for trace in traces for turn in trace.turns for s in turn)
    signals = tuple(name for name in scored if name in weights.signals)
    column = {name: place for place, name in enumerate(signals)}
    by_length: dict[int, list[int]] = defaultdict(list)
    for place, trace in enumerate(traces):
        by_length[len(trace.turns)].append(place)
    blocks = []
    for length, places in sorted(by_length.items()):
        scores = np.full((len(places), length, len(signals)), np.nan)
        for row, place in enumerate(places):
            for turn, scored_turn in enumerate(traces[place].turns):
                for score in scored_turn:
                    if score.name in column:
                        scores[row, turn, column[score.name]] = score.score
        blocks.append(ScoreBlock(places=np.array(places), scores=scores))
    return ScoreMatrix(
        signals=signals,
        blocks=tuple(blocks),
        is_attack=np.array([trace.is_attack for trace in traces], dtype=bool),
        is_hard=np.array([trace.hard_turn is not None for trace in traces], dtype=bool),
        sources=tuple(trace.source for trace in traces),
    )


def peaks(matrix: ScoreMatrix, weights: Weights, prior: float) -> Array:
    """Return the highest sum of nats that each trace reaches; a vetoed one stands above all."""
    found = np.zeros(matrix.size)
    for block in matrix.blocks:
        found[block.places] = running_sums(block, matrix.signals, weights, prior).max(axis=1)
    found[matrix.is_hard] = VETO
    return found


def running_sums(
    block: ScoreBlock, signals: Sequence[str], weights: Weights, prior: float
) -> Array:
    """Return the sum of nats after each turn of each trace."""
    nats = _nats(block.scores, [weights.signals[name] for name in signals])
    is_level = np.array([weights.signals[name].kind == "level" for name in signals])
    leak = weights.leak
    slow_odds = _log_odds(leak.slow_from_risk)
    count, turns, _ = nats.shape
    entries, share = np.zeros_like(nats), np.ones_like(nats)
    sums, before = np.zeros((count, turns)), np.zeros(count)
    for turn in range(turns):
        is_slow = prior + before >= slow_odds
        share[:, :turn] = _leaked(share[:, :turn], entries[:, :turn], is_slow, leak)
        left = (entries[:, :turn] * share[:, :turn]).sum(axis=1)
        new_nats = nats[:, turn]
        new = _material(np.where(np.isnan(new_nats), 0.0, new_nats - np.where(is_level, left, 0.0)))
        entries[:, turn] = _relieved(new, left.sum(axis=1), is_slow, leak)
        before = left.sum(axis=1) + entries[:, turn].sum(axis=1)
        sums[:, turn] = before
    return sums


def _nats(scores: Array, chosen: Sequence[SignalWeight]) -> Array:
    found = np.empty_like(scores)
    for column, weight in enumerate(chosen):
        score = scores[..., column]
        if weight.link == "logit":
            kept = np.clip(score, 1e-6, 1 - 1e-6)
            value = weight.scale * np.log(kept / (1 - kept)) + weight.shift
        elif weight.link == "upper":
            value = weight.scale * np.maximum(0.0, 2 * score - 1)
        else:
            value = weight.scale * score + np.where(score != 0, weight.shift, 0.0)
        found[..., column] = np.clip(value, -weight.limit, weight.limit)
    return found


def _leaked(
    share: Array, entries: Array, is_slow: npt.NDArray[np.bool_], leak: LeakWeights
) -> Array:
    fast, slow = 2.0 ** (-1 / leak.half_life_turns), 2.0 ** (-1 / leak.slow_half_life_turns)
    credit = 2.0 ** (-1 / leak.credit_half_life_turns)
    suspicion = np.maximum(leak.residue, share * np.where(is_slow, slow, fast)[:, None, None])
    faded = share * np.where(is_slow, slow, credit)[:, None, None]
    kept: Array = np.where(entries > 0, suspicion, faded)
    return kept


def _relieved(new: Array, left: Array, is_slow: npt.NDArray[np.bool_], leak: LeakWeights) -> Array:
    change = new.sum(axis=1)
    relief = np.where(is_slow, leak.slow_relief_nats, leak.relief_nats)
    is_held = (change < 0) & (left > relief)
    scale = np.ones_like(change)
    scale[is_held] = np.minimum(1.0, relief[is_held] / -change[is_held])
    return np.where(is_held[:, None], _material(new * scale[:, None]), new)


def _material(nats: Array) -> Array:
    return np.where(np.abs(nats) >= MATERIAL_NATS, nats, 0.0)


def _log_odds(risk: float) -> float:
    if risk <= 0.0:
        return -math.inf
    return math.inf if risk >= 1.0 else math.log(risk / (1 - risk))
