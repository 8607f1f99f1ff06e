"""Everything measured of one contender."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from promptguard.config import ControllerConfig
from promptguard.risk.weights import PRESETS, Weights
from promptguard.state import Mode
from promptguard.validation.acceptance import Acceptance, acceptance_of
from promptguard.validation.compare import SignalAttribution, signal_attribution
from promptguard.validation.contenders import Contender
from promptguard.validation.dataset import Case
from promptguard.validation.dialogues import Dialogues, dialogues_of
from promptguard.validation.engine_bench import flag_mode
from promptguard.validation.groups import Group, Judged, Macro, group_of, macro_of, scores_of
from promptguard.validation.intervals import ROUNDS, Redrawn
from promptguard.validation.metrics import Bin, percentile, reliability, roc_points
from promptguard.validation.order import OrderTest
from promptguard.validation.outcome import Outcome

MOST_POINTS = 200
MOST_MISSES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Milliseconds for one turn; None where it was not measured."""

    turns: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """An attack that was let pass, by its id and its risk turn by turn."""

    id: str | int
    source: str
    category: str
    risks: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One contender's measures; `judged` and `failed` add up to the cases given."""

    name: str
    judged: int
    failed: int
    overall: Group
    macro: Macro
    by_source: tuple[Group, ...]
    by_language: tuple[Group, ...]
    by_category: tuple[Group, ...]
    dialogues: Dialogues
    acceptance: Acceptance
    latency: Latency
    cost_usd: float
    roc: tuple[tuple[float, float], ...]
    reliability: tuple[Bin, ...]
    worst_misses: tuple[Miss, ...]
    signals: SignalAttribution | None = None
    order: OrderTest | None = None


def summary_of(
    contender: Contender,
    cases: Sequence[Case],
    outcomes: Sequence[Outcome],
    *,
    seed: int,
    rounds: int = ROUNDS,
    weights: Weights | None = None,
    order: OrderTest | None = None,
) -> Summary:
    """Measure one contender; `weights` are those that its engine used, for the signals' share."""
    judged = [(c, o) for c, o in zip(cases, outcomes, strict=True) if not o.error]
    attack, benign = scores_of(judged, is_attack=True), scores_of(judged, is_attack=False)
    pool = Redrawn(benign, seed=seed, rounds=rounds)
    by_source = _grouped(judged, lambda case: case.source)
    return Summary(
        name=contender.name,
        judged=len(judged),
        failed=len(cases) - len(judged),
        overall=group_of("all", judged, pool),
        macro=macro_of(tuple(by_source.values()), pool),
        by_source=_groups(by_source, pool),
        by_language=_groups(_grouped(judged, lambda case: case.lang), pool),
        by_category=_groups(_grouped(judged, lambda case: case.category), pool),
        dialogues=dialogues_of(judged, pool),
        acceptance=acceptance_of(judged, pool),
        latency=_latency(judged),
        cost_usd=sum(o.cost_usd for _, o in judged),
        roc=_thinned(roc_points(attack, benign)),
        reliability=reliability(
            np.array([o.score for _, o in judged], dtype=float),
            np.array([c.is_attack for c, _ in judged], dtype=bool),
        ),
        worst_misses=_worst_misses(judged),
        signals=_signals(contender, cases, outcomes, weights),
        order=order,
    )


def _grouped(judged: Sequence[Judged], key: Callable[[Case], str]) -> dict[str, list[Judged]]:
    groups: dict[str, list[Judged]] = defaultdict(list)
    for case, outcome in judged:
        groups[key(case) or "unknown"].append((case, outcome))
    return dict(sorted(groups.items()))


def _groups(groups: dict[str, list[Judged]], pool: Redrawn) -> tuple[Group, ...]:
    return tuple(group_of(name, judged, pool) for name, judged in groups.items())


def _latency(judged: Sequence[Judged]) -> Latency:
    times = np.array([ms for _, o in judged for ms in o.turn_ms], dtype=float)
    return Latency(
        turns=times.size,
        p50_ms=percentile(times, 0.50),
        p95_ms=percentile(times, 0.95),
        p99_ms=percentile(times, 0.99),
    )


def _thinned(points: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """Keep what a plot can show, dense where few are falsely alarmed."""
    if len(points) <= MOST_POINTS:
        return points
    places = np.unique(np.round((len(points) - 1) * np.linspace(0, 1, MOST_POINTS) ** 2))
    return tuple(points[int(place)] for place in places)


def _worst_misses(judged: Sequence[Judged]) -> tuple[Miss, ...]:
    """Return the conversations that were attacks and looked least like it."""
    missed = [(c, o) for c, o in judged if c.is_attack and not o.is_flagged and o.turns >= 2]
    missed.sort(key=lambda item: (item[1].score, item[0].index))
    return tuple(
        Miss(id=c.id, source=c.source, category=c.category, risks=o.risks)
        for c, o in missed[:MOST_MISSES]
    )


def _signals(
    contender: Contender,
    cases: Sequence[Case],
    outcomes: Sequence[Outcome],
    weights: Weights | None,
) -> SignalAttribution | None:
    settings = contender.settings
    if weights is None or not isinstance(settings, ControllerConfig):
        return None
    mode = flag_mode(settings.policy)
    if mode is None or mode is Mode.SAFE:
        return None
    share = settings.false_positive_budget or PRESETS[settings.preset]
    return signal_attribution(
        cases, outcomes, prior=weights.prior_for(share), bar=weights.modes.odds_of(mode)
    )
