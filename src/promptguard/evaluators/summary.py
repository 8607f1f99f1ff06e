"""From the judged layers of one prompt to its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from statistics import fmean

from promptguard.config import PromptGuardConfig
from promptguard.core.ensemble import merge
from promptguard.core.layers import UNEVALUATED, Layer, LayerPriority, MultiNeutrosophicPrompt
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.core.prompt import LayerText
from promptguard.core.reciprocity import reciprocity_of
from promptguard.errors import EvaluationError
from promptguard.evaluators.metrics import (
    LayerResult,
    ReciprocityMetrics,
    TypeResult,
    decision_of,
    usage_of,
)
from promptguard.evaluators.panel import Opinion
from promptguard.evaluators.tally import CascadeReport

TRUSTED_DEFAULT = Neutrosophic(0.8, 0.3, 0.1)
"""A developer's layer where no judge looks at it: the value that the recorded judge gave to the
system layer in all 676 records of the published run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLayer:
    """A layer and what was said about it; `was_asked` False means that nobody had to judge."""

    text: LayerText
    opinions: tuple[Opinion, ...] = ()
    failures: tuple[EvaluationError, ...] = ()
    was_asked: bool = True


def metrics_of(
    judged: Sequence[JudgedLayer], config: PromptGuardConfig, disguises: tuple[str, ...] = ()
) -> ReciprocityMetrics:
    """Merge, weigh and label; there is at least one user layer with an opinion."""
    layers = {item.text.name: _layer_result(item, config) for item in judged}
    prompt = MultiNeutrosophicPrompt(_layer(result) for result in layers.values())
    exchange = reciprocity_of(prompt)
    users = [result for result in layers.values() if result.priority is LayerPriority.USER]
    worst = max(users, key=lambda result: result.value.falsehood)
    threshold = _threshold(worst.evaluations, config)
    failures = tuple(error for item in judged for error in _failures(item))
    return ReciprocityMetrics(
        ayni_balance=exchange.balance,
        exchange_type=exchange.exchange_type,
        label=exchange.label,
        decision=decision_of(worst.value, threshold=threshold, label=exchange.label),
        decision_threshold=threshold,
        value=prompt.aggregate(),
        worst=worst.value,
        worst_layer=worst.name,
        trust=exchange.trust,
        flows=exchange.flows,
        ensemble_results={
            found.evaluation_type: found.value.as_tuple() for found in _worst_per_type(users)
        },
        detected_by=tuple(
            found.evaluation_type
            for found in _worst_per_type(users)
            if found.value.falsehood >= _threshold((found,), config)
        ),
        per_layer=layers,
        disguises=disguises,
        degraded=bool(failures),
        failures=tuple(str(error) for error in failures),
        usage=usage_of(
            tuple(one for item in judged for said in item.opinions for one in said.judgements)
        ),
        cascade=_cascade(judged),
    )


def _layer_result(item: JudgedLayer, config: PromptGuardConfig) -> LayerResult:
    return LayerResult(
        name=item.text.name,
        priority=item.text.priority,
        chars=len(item.text.content),
        value=_merged(item, config),
        evaluations=tuple(
            TypeResult(
                evaluation_type=opinion.evaluation_type,
                value=opinion.value,
                threshold=opinion.threshold,
                judgements=opinion.judgements,
            )
            for opinion in item.opinions
        ),
    )


def _merged(item: JudgedLayer, config: PromptGuardConfig) -> Neutrosophic:
    values = {opinion.evaluation_type: opinion.value for opinion in item.opinions}
    if not values:
        return UNEVALUATED if item.was_asked else TRUSTED_DEFAULT
    if item.text.priority.is_trusted:
        return item.opinions[0].value
    return merge(config.ensemble_strategy, values, config.weights)


def _layer(result: LayerResult) -> Layer:
    return Layer(
        priority=result.priority,
        name=result.name,
        chars=result.chars,
        evaluations=tuple(
            judgement.value for found in result.evaluations for judgement in found.judgements
        ),
        merged=result.value,
    )


def _threshold(evaluations: Sequence[TypeResult], config: PromptGuardConfig) -> float:
    if config.decision_threshold is not None:
        return config.decision_threshold
    return fmean(found.threshold for found in evaluations)


def _worst_per_type(users: Sequence[LayerResult]) -> tuple[TypeResult, ...]:
    worst: dict[str, TypeResult] = {}
    for result in users:
        for found in result.evaluations:
            known = worst.setdefault(found.evaluation_type, found)
            if found.value.falsehood > known.value.falsehood:
                worst[found.evaluation_type] = found
    return tuple(worst.values())


def _failures(item: JudgedLayer) -> tuple[EvaluationError, ...]:
    return (*item.failures, *(error for one in item.opinions for error in one.failures))


def _cascade(judged: Sequence[JudgedLayer]) -> CascadeReport | None:
    reports = [one.cascade for item in judged for one in item.opinions if one.cascade is not None]
    return reduce(add, reports, CascadeReport()) if reports else None
