"""Judges in order of cost: the next one is asked only where the one before is in doubt."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from promptguard.config import BudgetConfig
from promptguard.errors import BudgetError, ConfigError, EvaluationError
from promptguard.evaluators.opinion import CascadeReport, Opinion, UsageRow
from promptguard.evaluators.panel import ConcurrencyLimit
from promptguard.evaluators.registry import (
    abandoned_usage,
    can_judge,
    is_price_known,
    threshold_of,
)
from promptguard.protocols import Judge, LayerJudgement, LayerTask
from promptguard.usage import Usage

DAY_S = 24 * 3600.0
# Session ids are chosen by callers, who must not be able to fill the memory.
_SESSIONS_REMEMBERED = 100_000


class Budget:
    """The allowance of calls and money, per session and per day, in this process.

    Questions are counted before they are asked, calls and money after: a question may take
    several calls. Questions under way, and calls of unknown cost, are counted at the price of
    the dearest question so far, so the money can be exceeded only until the first price is
    known.
    """

    def __init__(self, config: BudgetConfig, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self._day: deque[tuple[float, int, float]] = deque()
        self._sessions: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()
        self._under_way = 0
        self._calls = 0
        self._dearest_usd = 0.0
        self._spent_usd = 0.0

    @property
    def refuses_unknown_prices(self) -> bool:
        """Whether a model without a known price must not be asked."""
        return self._config.unknown_price == "refuse"

    def take(self, session: str) -> None:
        """Count one question as under way; BudgetError where it may not be asked."""
        with self._lock:
            self._forget_old(self._clock())
            if self._sessions.get(session, 0) >= self._config.calls_per_session:
                raise BudgetError("The session's allowance of calls is spent.")
            if self._calls + self._under_way >= self._config.calls_per_day:
                raise BudgetError("The day's allowance of calls is spent.")
            expected = self._spent_usd + (self._under_way + 1) * self._dearest_usd
            if expected > self._config.usd_per_day:
                raise BudgetError("The day's allowance of money is spent.")
            self._under_way += 1
            self._count_session(session, 1)

    def settle(self, session: str, usage: Usage | None) -> None:
        """Close a question: with its usage, or with None where no call was made after all."""
        with self._lock:
            self._under_way -= 1
            # A judge that does not count its calls was asked all the same.
            calls = 0 if usage is None else max(1, usage.calls)
            self._count_session(session, calls - 1)
            if usage is None:
                return
            cost = usage.cost_usd + usage.unpriced_calls * self._dearest_usd
            # With its time, because the day is the last 24 hours and not a date.
            self._day.append((self._clock(), calls, cost))
            self._calls += calls
            self._spent_usd += cost
            self._dearest_usd = max(self._dearest_usd, usage.cost_usd)

    def _count_session(self, session: str, step: int) -> None:
        self._sessions[session] = self._sessions.get(session, 0) + step
        self._sessions.move_to_end(session)
        while len(self._sessions) > _SESSIONS_REMEMBERED:
            self._sessions.popitem(last=False)

    def _forget_old(self, now: float) -> None:
        while self._day and self._day[0][0] <= now - DAY_S:
            _, calls, cost = self._day.popleft()
            self._calls -= calls
            self._spent_usd -= cost
        # Taking floats away again leaves a rest behind, which would add up over the days.
        if not self._day:
            self._spent_usd = 0.0


class CascadePanel:
    """Asks the first judge, and further ones while indeterminacy is at least `doubt_from`.

    The last answer counts; all are kept. Where the allowance is spent or the next judge is too
    slow, the answer in doubt stands and is marked as unresolved. A judge that fails raises,
    unless partial answers count: then the answer before it stands and the failure is named.
    Raises ConfigError where a further judge has no known price and the budget wants one.
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
        if budget.refuses_unknown_prices:
            _check_prices(self._further)

    def can_ask(self, evaluation_type: str) -> bool:
        """Return whether all of them know this evaluation type."""
        return all(can_judge(judge, evaluation_type) for judge in (self._first, *self._further))

    async def ask(self, task: LayerTask, limit: ConcurrencyLimit) -> Opinion:
        """Return the last answer, with a report of what was passed on."""
        opinion = self._opinion(await limit.judge(self._first, task))
        for judge in self._further:
            if opinion.value.indeterminacy < self._doubt_from:
                break
            opinion = await self._pass_on(opinion, judge, task, limit)
            if opinion.is_unresolved:
                break
        return opinion

    def _opinion(self, judgement: LayerJudgement) -> Opinion:
        doubt = int(judgement.value.indeterminacy >= self._doubt_from)
        return Opinion(
            evaluation_type=judgement.evaluation_type,
            value=judgement.value,
            threshold=threshold_of(self._first),
            judgements=(judgement,),
            cascade=CascadeReport(judged=1, in_doubt=doubt),
        )

    async def _pass_on(
        self, before: Opinion, judge: Judge, task: LayerTask, limit: ConcurrencyLimit
    ) -> Opinion:
        try:
            self._budget.take(self._session)
        except BudgetError:
            return _unresolved(before, CascadeReport(withheld=1))
        usage: Usage | None = None

        def count_call() -> None:
            nonlocal usage
            # A call that is cancelled may have been charged all the same, so it counts as a call.
            usage = Usage(calls=1) + replace(abandoned_usage(judge), calls=0)

        try:
            judgement = await limit.judge(
                judge, task, timeout_s=self._seconds_per_call, when_asked=count_call
            )
            usage = None if judgement.is_cached else judgement.usage
        except TimeoutError:
            lost = abandoned_usage(judge)
            row = UsageRow(evaluation_type=task.evaluation_type, model=judge.name, usage=lost)
            late = _unresolved(before, CascadeReport(passed_on=1, failed=1, usage=lost))
            return replace(late, abandoned=(*before.abandoned, row))
        except EvaluationError as error:
            usage = error.usage
            if not self._keep_partial:
                raise
            failed = _unresolved(before, CascadeReport(passed_on=1, failed=1, usage=error.usage))
            return replace(failed, failures=(*before.failures, error))
        finally:
            self._budget.settle(self._session, usage)
        return _overruled(before, judge, judgement)


def _check_prices(judges: Sequence[Judge]) -> None:
    for judge in judges:
        if not is_price_known(judge):
            raise ConfigError(
                f"The price of {judge.name} is not known, so the budget of money cannot be kept: "
                "set endpoint.prices for it, or budget.unknown_price to allow."
            )


def _unresolved(before: Opinion, step: CascadeReport) -> Opinion:
    return replace(before, cascade=_report(before) + step, is_unresolved=True)


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
        before,
        cascade=_report(before) + step,
        value=judgement.value,
        threshold=threshold,
        judgements=(*before.judgements, judgement),
    )


def _report(opinion: Opinion) -> CascadeReport:
    return opinion.cascade or CascadeReport()
