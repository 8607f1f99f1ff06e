"""The report of a run: every contender measured, summed up and compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from promptguard.config import ControllerConfig
from promptguard.counts import counted
from promptguard.risk.weights import Weights, named_weights
from promptguard.runs.report import (
    BadLine,
    Latency,
    Manifest,
    Mistake,
    Mistakes,
    OrderTest,
    Report,
    SignalAttribution,
    Summary,
)
from promptguard.validation.compare import attribution, pairings, signal_attribution
from promptguard.validation.contenders import Contender, Outcome, Outcomes
from promptguard.validation.dataset import Case, Dataset
from promptguard.validation.dialogues import dialogues_of
from promptguard.validation.groups import (
    LEAST_OF_BOTH,
    Judged,
    acceptance_of,
    bins_of,
    group_of,
    macro_of,
    scores_of,
)
from promptguard.validation.headline import headline_of
from promptguard.validation.judging import flag_mode
from promptguard.validation.metrics import ROUNDS, Redrawn, percentile, roc_points
from promptguard.verdict import Mode

MOST_FAULTS = 200
MOST_POINTS = 200
MOST_MISTAKES = 100
MOST_SIGNALS = 3


def report_of(
    dataset: Dataset,
    contenders: Sequence[Contender],
    outcomes: Outcomes,
    manifest: Manifest,
    *,
    now: float,
    seed: int,
    rounds: int = ROUNDS,
    orders: Mapping[str, OrderTest] | None = None,
    command: str = "",
) -> Report:
    """Measure every contender and compare them; `command` is what was typed to make it."""
    return Report(
        created=now,
        command=command,
        cases=len(dataset.cases),
        skipped=dataset.skipped,
        faults=len(dataset.faults),
        bad_lines=tuple(
            BadLine(file=fault.file, number=fault.number, reason=fault.reason)
            for fault in dataset.faults[:MOST_FAULTS]
        ),
        warnings=tuple(_warnings(dataset, outcomes)),
        manifest=manifest,
        contenders=tuple(
            summary_of(
                contender,
                dataset.cases,
                outcomes[contender.name],
                seed=seed,
                rounds=rounds,
                weights=_weights(contender),
                order=(orders or {}).get(contender.name),
            )
            for contender in contenders
        ),
        pairings=pairings(dataset.cases, outcomes),
        attribution=attribution(dataset.cases, outcomes, contenders),
    )


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
    # What could not be judged is reported apart and never counted as passed.
    judged = [(c, o) for c, o in zip(cases, outcomes, strict=True) if not o.error]
    attack, benign = scores_of(judged, is_attack=True), scores_of(judged, is_attack=False)
    pool = Redrawn(benign, seed=seed, rounds=rounds)
    by_source = _grouped(judged, lambda case: case.source)
    overall = group_of("all", judged, pool)
    macro = macro_of(tuple(by_source.values()), pool)
    # The order of these calls is part of the result: they draw from one seeded generator.
    sources, languages, categories = (
        tuple(group_of(name, members, pool) for name, members in groups.items())
        for groups in (
            by_source,
            _grouped(judged, lambda case: case.lang),
            _grouped(judged, lambda case: case.category),
        )
    )
    dialogues, acceptance = dialogues_of(judged, pool), acceptance_of(judged, pool)
    latency, cost = _latency(judged), _cost(outcomes)
    return Summary(
        name=contender.name,
        judged=len(judged),
        failed=len(cases) - len(judged),
        headline=headline_of(macro, overall, dialogues, acceptance, latency, cost),
        overall=overall,
        macro=macro,
        by_source=sources,
        by_language=languages,
        by_category=categories,
        dialogues=dialogues,
        acceptance=acceptance,
        latency=latency,
        cost_usd=cost,
        roc=_thinned(roc_points(attack, benign)),
        reliability=bins_of(judged),
        # Attacks that looked least like one first, and benign records in which most was seen.
        missed=_mistakes(judged, is_attack=True),
        false_alarms=_mistakes(judged, is_attack=False),
        signals=_signals(contender, cases, outcomes, weights),
        order=order,
    )


def _grouped(judged: Sequence[Judged], key: Callable[[Case], str]) -> dict[str, list[Judged]]:
    groups: dict[str, list[Judged]] = defaultdict(list)
    for case, outcome in judged:
        groups[key(case) or "unknown"].append((case, outcome))
    return dict(sorted(groups.items()))


def _cost(outcomes: Sequence[Outcome]) -> float | None:
    """Return what all cases cost, those that could not be judged included."""
    costs = [outcome.cost_usd for outcome in outcomes]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


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


def _mistakes(judged: Sequence[Judged], *, is_attack: bool) -> Mistakes:
    """Return the wrong records of one side, the worst first."""
    found = [
        (c, o) for c, o in judged if c.is_attack is is_attack and o.is_flagged is not is_attack
    ]
    found.sort(key=lambda item: (item[1].score if is_attack else -item[1].score, item[0].index))
    return Mistakes(
        count=len(found), listed=tuple(_mistake(c, o) for c, o in found[:MOST_MISTAKES])
    )


def _mistake(case: Case, outcome: Outcome) -> Mistake:
    strongest = sorted(outcome.nats, key=lambda item: -abs(item[1]))[:MOST_SIGNALS]
    return Mistake(
        id=case.id,
        source=case.source,
        category=case.category,
        lang=case.lang,
        score=outcome.score,
        flagged_turn=outcome.flagged_turn,
        is_hard=outcome.is_hard,
        risks=outcome.risks,
        signals=tuple((name, nats) for name, nats in strongest if nats),
    )


def _warnings(dataset: Dataset, outcomes: Outcomes) -> Iterator[str]:
    if dataset.sample:
        yield f"Measured on a sample: {dataset.sample}."
    attacks = sum(case.is_attack for case in dataset.cases)
    benign = len(dataset.cases) - attacks
    if min(attacks, benign) < LEAST_OF_BOTH:
        yield (
            f"Only {counted(attacks, 'attack')} and {counted(benign, 'benign record')}: with fewer "
            f"than {LEAST_OF_BOTH} of each the numbers say little, and no intervals are given."
        )
    for name, found in outcomes.items():
        failed = sum(bool(outcome.error) for outcome in found)
        if failed:
            all_of_them = counted(len(found), "record")
            yield f"{name} could not judge {failed:,} of {all_of_them}; these count nowhere."


def _weights(contender: Contender) -> Weights | None:
    if not isinstance(contender.settings, ControllerConfig):
        return None
    return named_weights(contender.settings.weights)


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
    return signal_attribution(cases, outcomes, bar=weights.modes.odds_of(mode))
