"""Judges in order of cost: the next one is asked only where the one before is in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from promptguard.errors import BudgetError, EvaluationError
from promptguard.evaluators.budget import Budget
from promptguard.evaluators.gate import Gate
from promptguard.evaluators.opening import can_judge, threshold_of
from promptguard.evaluators.panel import Opinion
from promptguard.evaluators.tally import CascadeReport
from promptguard.protocols import Judge, LayerJudgement, LayerTask
from promptguard.usage import Usage


class CascadePanel:
    """Asks the first judge, and further ones while indeterminacy is at least `doubt_from`.

    The last answer counts; all are kept. Where the allowance is spent or the next judge is too
    slow, the answer in doubt stands, with its doubt. A judge that fails raises, unless partial
    answers count: then the answer before it stands and the failure is named.
    """

    def __init__(
        self,
        judges: Sequence[Judge],
        *,
        budget: Budget,
        session: str,
        doubt_from: float,
        seconds_per_call: float,
        keep_partial: bool = False,
    ) -> None:
        self._first, *self._further = judges
        self._budget = budget
        self._session = session
        self._doubt_from = doubt_from
        self._seconds_per_call = seconds_per_call
        self._keep_partial = keep_partial

    def can_ask(self, evaluation_type: str) -> bool:
        """Return whether all of them know this evaluation type."""
        return all(can_judge(judge, evaluation_type) for judge in (self._first, *self._further))

    async def ask(self, task: LayerTask, gate: Gate) -> Opinion:
        """Return the last answer, with a report of what was passed on."""
        first = await gate.judge(self._first, task)
        opinion = self._opinion(self._first, first)
        for judge in self._further:
            if opinion.value.indeterminacy < self._doubt_from:
                break
            heard = len(opinion.judgements)
            opinion = await self._pass_on(opinion, judge, task, gate)
            if len(opinion.judgements) == heard:
                break
        return opinion

    def _opinion(self, judge: Judge, judgement: LayerJudgement) -> Opinion:
        doubt = int(judgement.value.indeterminacy >= self._doubt_from)
        return Opinion(
            evaluation_type=judgement.evaluation_type,
            value=judgement.value,
            threshold=threshold_of(judge),
            judgements=(judgement,),
            cascade=CascadeReport(judged=1, in_doubt=doubt),
        )

    async def _pass_on(self, before: Opinion, judge: Judge, task: LayerTask, gate: Gate) -> Opinion:
        try:
            self._budget.take(self._session)
        except BudgetError:
            return _counted(before, CascadeReport(withheld=1))
        judgement: LayerJudgement | None = None
        try:
            judgement = await gate.judge(judge, task, timeout_s=self._seconds_per_call)
        except TimeoutError:
            return _counted(before, CascadeReport(passed_on=1, failed=1))
        except EvaluationError as error:
            if not self._keep_partial:
                raise
            failed = _counted(before, CascadeReport(passed_on=1, failed=1))
            return replace(failed, failures=(*before.failures, error))
        finally:
            self._settle(judgement)
        return _overruled(before, judge, judgement)

    def _settle(self, judgement: LayerJudgement | None) -> None:
        # A call that failed may have been charged all the same, so it counts as a call.
        usage = Usage(calls=1) if judgement is None else judgement.usage
        was_made = judgement is None or not judgement.is_cached
        self._budget.settle(self._session, usage if was_made else None)


def _overruled(before: Opinion, judge: Judge, judgement: LayerJudgement) -> Opinion:
    threshold = threshold_of(judge)
    was_detection = before.value.falsehood >= before.threshold
    is_detection = judgement.value.falsehood >= threshold
    step = CascadeReport(
        passed_on=1,
        changed=int(was_detection != is_detection),
        doubt_before=before.value.indeterminacy,
        doubt_after=judgement.value.indeterminacy,
        usage=judgement.usage,
    )
    return replace(
        _counted(before, step),
        value=judgement.value,
        threshold=threshold,
        judgements=(*before.judgements, judgement),
    )


def _counted(opinion: Opinion, step: CascadeReport) -> Opinion:
    return replace(opinion, cascade=(opinion.cascade or CascadeReport()) + step)
