"""The result of evaluating one prompt, with every number that led to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from pydantic import TypeAdapter

from promptguard.config import PromptGuardConfig
from promptguard.core.decision import Decision, Label, assess, finding_of
from promptguard.core.ensemble import merge
from promptguard.core.layers import (
    DETECTION_F,
    UNEVALUATED,
    Layer,
    LayerPriority,
    MultiNeutrosophicPrompt,
)
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.core.reciprocity import ExchangeType
from promptguard.core.trust import Trust
from promptguard.evaluators.opinion import CascadeReport, JudgedLayer, UsageRow, summed_rows
from promptguard.evaluators.prompts import evaluation_prompt
from promptguard.protocols import LayerJudgement
from promptguard.usage import Usage

Triple = tuple[float, float, float]
TRUSTED_DEFAULT = Neutrosophic(0.8, 0.3, 0.1)
"""A developer's layer where no judge looks at it: the value that the recorded judge gave to the
system layer in all 676 records of the published run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeResult:
    """What one evaluation type found in one layer, and which judgements it came from."""

    evaluation_type: str
    value: Neutrosophic
    threshold: float
    judgements: tuple[LayerJudgement, ...]
    is_unresolved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerResult:
    """One layer's merged value and the evaluations that were merged.

    A trusted layer without evaluations was not judged: it carries the default value.
    """

    name: str
    priority: LayerPriority
    chars: int
    value: Neutrosophic
    evaluations: tuple[TypeResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReciprocityMetrics:
    """How one prompt was judged.

    `value` is the aggregate of all layers; `worst` the merged value of the user layer with the
    highest falsehood. `decision` and `label` follow from the balances as `core.decision` says.
    `ensemble_results` holds per evaluation type the highest-F value over the user layers,
    `detected_by` the types among them that cross the decision threshold alone. `degraded` says
    that some judges failed and were left out; `failures` says which. `usage` adds up
    `usage_rows`: what each evaluation type cost at each model, failed calls included.
    """

    ayni_balance: float
    user_balance: float
    exchange_type: ExchangeType
    label: Label
    decision: Decision
    decision_threshold: float
    value: Neutrosophic
    worst: Neutrosophic
    worst_layer: str
    trust: Trust
    flows: Mapping[str, float]
    ensemble_results: Mapping[str, Triple]
    detected_by: tuple[str, ...]
    per_layer: Mapping[str, LayerResult]
    disguises: tuple[str, ...] = ()
    degraded: bool = False
    failures: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    usage_rows: tuple[UsageRow, ...] = ()
    cascade: CascadeReport | None = None

    @property
    def judgements(self) -> tuple[LayerJudgement, ...]:
        """Every judgement, layer by layer."""
        return tuple(
            judgement
            for layer in self.per_layer.values()
            for evaluation in layer.evaluations
            for judgement in evaluation.judgements
        )

    @property
    def per_model(self) -> Mapping[str, Mapping[str, Triple]]:
        """Model to evaluation type to (T, I, F), on the worst user layer."""
        found: dict[str, dict[str, Triple]] = {}
        for evaluation in self.per_layer[self.worst_layer].evaluations:
            for judgement in evaluation.judgements:
                by_type = found.setdefault(judgement.model, {})
                by_type[evaluation.evaluation_type] = judgement.value.as_tuple()
        return found

    @property
    def cache_hits(self) -> int:
        """How many judgements came from the cache and cost nothing."""
        return sum(judgement.is_cached for judgement in self.judgements)


def metrics_of(
    judged: Sequence[JudgedLayer], config: PromptGuardConfig, disguises: tuple[str, ...] = ()
) -> ReciprocityMetrics:
    """Merge, weigh and label; there is at least one user layer with an opinion."""
    layers = {item.text.name: _layer_result(item, config) for item in judged}
    prompt = MultiNeutrosophicPrompt(_layer(result, config) for result in layers.values())
    users = [result for result in layers.values() if not result.priority.is_trusted]
    worst = max(users, key=lambda result: result.value.falsehood)
    by_type = _worst_per_type(users)
    found = assess(
        prompt,
        finding=finding_of(
            (one.value.falsehood, _kind_of(one))
            for layer in layers.values()
            for one in layer.evaluations
        ),
        is_unresolved=any(one.is_unresolved for user in users for one in user.evaluations),
    )
    failures = tuple(error for item in judged for error in item.all_failures)
    rows = summed_rows(row for item in judged for row in item.usage_rows())
    reports = [one.cascade for item in judged for one in item.opinions if one.cascade is not None]
    return ReciprocityMetrics(
        ayni_balance=found.exchange.balance,
        user_balance=found.user_balance,
        exchange_type=found.exchange.exchange_type,
        label=found.label,
        decision=found.decision,
        decision_threshold=_threshold(worst.evaluations, config),
        value=prompt.aggregate(),
        worst=worst.value,
        worst_layer=worst.name,
        trust=found.exchange.trust,
        flows=found.exchange.flows,
        ensemble_results={kind: one.value.as_tuple() for kind, one in by_type.items()},
        detected_by=tuple(
            kind
            for kind, one in by_type.items()
            if one.value.falsehood >= _threshold((one,), config)
        ),
        per_layer=layers,
        disguises=disguises,
        degraded=bool(failures),
        failures=tuple(str(error) for error in failures),
        usage=sum((row.usage for row in rows), Usage()),
        usage_rows=rows,
        cascade=sum(reports, CascadeReport()) if reports else None,
    )


def metrics_as_json(metrics: ReciprocityMetrics) -> str:
    """Return the whole result as JSON."""
    return _METRICS.dump_json(metrics, indent=2).decode()


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
                is_unresolved=opinion.is_unresolved,
            )
            for opinion in item.opinions
        ),
    )


def _merged(item: JudgedLayer, config: PromptGuardConfig) -> Neutrosophic:
    values = {opinion.evaluation_type: opinion.value for opinion in item.opinions}
    if not values:
        # A judge's failure is no reason to trust; the default is for layers nobody has to judge.
        return UNEVALUATED if item.was_asked else TRUSTED_DEFAULT
    if item.text.priority.is_trusted:
        return item.opinions[0].value
    return merge(config.ensemble_strategy, values, config.weights)


def _layer(result: LayerResult, config: PromptGuardConfig) -> Layer:
    # The decision threshold is calibrated on user layers; a developer's keeps the published one.
    is_calibrated = bool(result.evaluations) and not result.priority.is_trusted
    return Layer(
        priority=result.priority,
        name=result.name,
        chars=result.chars,
        evaluations=tuple(
            judgement.value for found in result.evaluations for judgement in found.judgements
        ),
        merged=result.value,
        detection_f=_detection_f(result, config) if is_calibrated else DETECTION_F,
    )


def _detection_f(result: LayerResult, config: PromptGuardConfig) -> float:
    """Return the falsehood from which a user layer is a detection.

    Where every judgement comes with its judge's own decision, that decision holds however the
    values were merged, unless the configuration names a threshold.
    """
    threshold = _threshold(result.evaluations, config)
    decisions = [j.is_blocked for found in result.evaluations for j in found.judgements]
    if config.decision_threshold is not None or None in decisions:
        return threshold
    if any(decisions):
        # A lenient merge may lie below the threshold, and the judge blocks all the same.
        return min(threshold, result.value.falsehood)
    # Beyond any falsehood: the judge lets the layer pass whatever the merge makes of it.
    return math.nextafter(1.0, 2.0)


def _kind_of(found: TypeResult) -> Label:
    """Return the kind that the judge with the highest falsehood names, else the type's."""
    worst = max(found.judgements, key=lambda one: one.value.falsehood, default=None)
    named = None if worst is None else worst.finds
    return named or evaluation_prompt(found.evaluation_type).finds


def _threshold(evaluations: Sequence[TypeResult], config: PromptGuardConfig) -> float:
    if config.decision_threshold is not None:
        return config.decision_threshold
    return fmean(found.threshold for found in evaluations)


def _worst_per_type(users: Sequence[LayerResult]) -> Mapping[str, TypeResult]:
    worst: dict[str, TypeResult] = {}
    for result in users:
        for found in result.evaluations:
            known = worst.setdefault(found.evaluation_type, found)
            if found.value.falsehood > known.value.falsehood:
                worst[found.evaluation_type] = found
    return worst


_METRICS: TypeAdapter[ReciprocityMetrics] = TypeAdapter(ReciprocityMetrics)
