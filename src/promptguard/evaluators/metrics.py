"""The result of evaluating one prompt, with every number that led to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from operator import add

from pydantic import TypeAdapter

from promptguard.core.layers import LayerPriority
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.core.reciprocity import ExchangeType, Label
from promptguard.core.trust import Trust
from promptguard.evaluators.tally import CascadeReport
from promptguard.protocols import LayerJudgement
from promptguard.usage import Usage

Triple = tuple[float, float, float]
INDETERMINATE_FROM = 0.5


class Decision(StrEnum):
    """What to do with a prompt."""

    ALLOW = "allow"
    CAUTION = "caution"
    BLOCK = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeResult:
    """What one evaluation type found in one layer, and which judgements it came from."""

    evaluation_type: str
    value: Neutrosophic
    threshold: float
    judgements: tuple[LayerJudgement, ...]


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

    `value` is the aggregate of all layers; `worst` the merged value of the worst user layer,
    on which `decision` rests. `ensemble_results` holds per evaluation type the highest-F value
    over the user layers, `detected_by` the types among them that cross the decision threshold
    alone. `degraded` says that some judges failed and were left out; `failures` says which.
    """

    ayni_balance: float
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


def decision_of(worst: Neutrosophic, *, threshold: float, label: Label) -> Decision:
    """Return block from the threshold on, caution where undecided or borderline, else allow."""
    if worst.falsehood >= threshold:
        return Decision.BLOCK
    if worst.indeterminacy >= INDETERMINATE_FROM or label is Label.BORDERLINE:
        return Decision.CAUTION
    return Decision.ALLOW


def usage_of(judgements: tuple[LayerJudgement, ...]) -> Usage:
    """Return what the judgements cost together."""
    return reduce(add, (judgement.usage for judgement in judgements), Usage())


def metrics_as_json(metrics: ReciprocityMetrics) -> str:
    """Return the whole result as JSON."""
    return _METRICS.dump_json(metrics, indent=2).decode()


_METRICS: TypeAdapter[ReciprocityMetrics] = TypeAdapter(ReciprocityMetrics)
