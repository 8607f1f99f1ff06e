"""Values between judges and metrics: opinions, judged layers, and what calls cost."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from promptguard.core.neutrosophic import Neutrosophic
from promptguard.core.prompt import LayerText
from promptguard.errors import EvaluationError
from promptguard.protocols import LayerJudgement
from promptguard.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What one evaluation type cost at one model."""

    evaluation_type: str
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeReport:
    """What the cascade passed on and gained, over any number of questions; reports add up.

    A question in doubt is passed on, or withheld because the allowance is spent. `failed`
    were passed on without an answer. `changed` crossed the decision threshold by it.
    """

    judged: int = 0
    in_doubt: int = 0
    passed_on: int = 0
    withheld: int = 0
    failed: int = 0
    changed: int = 0
    doubt_before: float = 0.0
    doubt_after: float = 0.0
    usage: Usage = field(default_factory=Usage)

    def __add__(self, other: CascadeReport) -> CascadeReport:
        sums = {
            item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(self)
        }
        return CascadeReport(**sums)

    @property
    def share_passed_on(self) -> float:
        """Share of questions that the next judge was asked."""
        return self.passed_on / self.judged if self.judged else 0.0

    @property
    def doubt_removed(self) -> float:
        """Mean indeterminacy that an answer took away, over those that came."""
        answered = self.passed_on - self.failed
        return (self.doubt_before - self.doubt_after) / answered if answered else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """The answer to one question: a value, and every judgement it came from.

    `threshold` is the falsehood from which those who made the value call it a detection.
    `failures` are judges that could not judge and were left out; `abandoned` are calls that
    took too long. `is_unresolved` marks a doubt that a further judge should have settled and did
    not.
    """

    evaluation_type: str
    value: Neutrosophic
    threshold: float
    judgements: tuple[LayerJudgement, ...]
    failures: tuple[EvaluationError, ...] = ()
    abandoned: tuple[UsageRow, ...] = ()
    is_unresolved: bool = False
    cascade: CascadeReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLayer:
    """A layer and the opinions on it; `was_asked` False means that nobody had to judge."""

    text: LayerText
    opinions: tuple[Opinion, ...] = ()
    failures: tuple[EvaluationError, ...] = ()
    was_asked: bool = True

    @property
    def all_failures(self) -> tuple[EvaluationError, ...]:
        """The failures of whole questions and those of single judges."""
        return (*self.failures, *(error for one in self.opinions for error in one.failures))

    def usage_rows(self) -> tuple[UsageRow, ...]:
        """Return what the layer cost, calls without a result included."""
        found = [
            (one.evaluation_type, judgement.model, judgement.usage)
            for one in self.opinions
            for judgement in one.judgements
        ]
        found += [(e.evaluation_type or "", e.model or "", e.usage) for e in self.all_failures]
        rows = [
            UsageRow(evaluation_type=kind, model=name, usage=usage) for kind, name, usage in found
        ]
        return summed_rows([*(row for one in self.opinions for row in one.abandoned), *rows])


class UsageMeter:
    """Adds up what calls cost, per evaluation type and model; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: tuple[UsageRow, ...] = ()

    def add(self, row: UsageRow) -> None:
        """Count a call, whatever came of it."""
        with self._lock:
            self._rows = summed_rows((*self._rows, row))

    @property
    def rows(self) -> tuple[UsageRow, ...]:
        """The sums so far."""
        # Without the lock: the tuple is replaced as a whole.
        return self._rows


def summed_rows(rows: Iterable[UsageRow]) -> tuple[UsageRow, ...]:
    """Return one row per evaluation type and model; what was not called at all is left out."""
    sums: dict[tuple[str, str], Usage] = {}
    for row in rows:
        if row.usage.calls:
            key = row.evaluation_type, row.model
            sums[key] = sums.get(key, Usage()) + row.usage
    return tuple(
        UsageRow(evaluation_type=kind, model=model, usage=usage)
        for (kind, model), usage in sums.items()
    )
