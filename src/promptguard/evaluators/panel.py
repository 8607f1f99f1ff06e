"""What one or several judges say to one question, in the single and the parallel mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from promptguard.core.layers import mean_of
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.errors import EvaluationError
from promptguard.evaluators.gate import Gate, all_or_none
from promptguard.evaluators.opening import can_judge, threshold_of
from promptguard.evaluators.tally import CascadeReport
from promptguard.protocols import Judge, LayerJudgement, LayerTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """The answer to one question: a value, and every judgement it came from.

    `threshold` is the falsehood from which those who made the value call it a detection.
    `failures` are judges that could not judge and were left out.
    """

    evaluation_type: str
    value: Neutrosophic
    threshold: float
    judgements: tuple[LayerJudgement, ...]
    failures: tuple[EvaluationError, ...] = ()
    cascade: CascadeReport | None = None


class Panel(Protocol):
    """One or several judges that answer together."""

    async def ask(self, task: LayerTask, gate: Gate) -> Opinion:
        """Return what they say; raises EvaluationError where they cannot."""

    def can_ask(self, evaluation_type: str) -> bool:
        """Return whether all of them know this evaluation type."""


class ParallelPanel:
    """Asks all its judges at once and takes the mean; with one judge, that judge's word."""

    def __init__(self, judges: Sequence[Judge], *, keep_partial: bool = False) -> None:
        self._judges = tuple(judges)
        self._keep_partial = keep_partial

    def can_ask(self, evaluation_type: str) -> bool:
        """Return whether all of them know this evaluation type."""
        return all(can_judge(judge, evaluation_type) for judge in self._judges)

    async def ask(self, task: LayerTask, gate: Gate) -> Opinion:
        """Return the mean; where partial answers count, the mean of those that came."""
        answers = await all_or_none(self._answer(judge, task, gate) for judge in self._judges)
        heard = [
            (judge, answer)
            for judge, answer in zip(self._judges, answers, strict=True)
            if isinstance(answer, LayerJudgement)
        ]
        failures = tuple(answer for answer in answers if isinstance(answer, EvaluationError))
        if not heard:
            raise failures[0]
        return Opinion(
            evaluation_type=task.evaluation_type,
            value=mean_of([answer.value for _, answer in heard]),
            threshold=fmean(threshold_of(judge) for judge, _ in heard),
            judgements=tuple(answer for _, answer in heard),
            failures=failures,
        )

    async def _answer(
        self, judge: Judge, task: LayerTask, gate: Gate
    ) -> LayerJudgement | EvaluationError:
        try:
            return await gate.judge(judge, task)
        except EvaluationError as error:
            if self._keep_partial:
                return error
            raise
