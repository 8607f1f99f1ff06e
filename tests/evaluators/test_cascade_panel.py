"""The cascade: who is asked, within which allowance, and what it gained."""

import asyncio

import pytest
from scripted_judges import (
    ATTACK,
    DOUBT,
    NORMAL,
    HoldingJudge,
    LocalLikeJudge,
    ScriptedJudge,
    cannot_judge,
)

from promptguard.config import BudgetConfig
from promptguard.core.layers import DETECTION_F
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.errors import BudgetError, EvaluationError
from promptguard.evaluators.cascade import DAY_S, Budget, CascadePanel
from promptguard.evaluators.opinion import CascadeReport
from promptguard.evaluators.panel import ConcurrencyLimit
from promptguard.protocols import LayerJudgement, LayerTask
from promptguard.usage import Usage

TASK = LayerTask(evaluation_type="ayni_relational", content="text", layer="USER")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def cascade(*judges, budget: Budget | None = None, **more) -> CascadePanel:
    settings = {"doubt_from": 0.4, "seconds_per_call": 5.0, "session": "s", **more}
    return CascadePanel(judges, budget=budget or Budget(BudgetConfig(), Clock()), **settings)


async def test_a_judge_that_is_sure_is_not_checked() -> None:
    """The next one costs nothing then."""
    second = ScriptedJudge()
    opinion = await cascade(LocalLikeJudge(default=ATTACK), second).ask(TASK, ConcurrencyLimit(4))
    assert opinion.value == ATTACK
    assert opinion.threshold == 0.5
    assert not second.asked
    assert opinion.cascade == CascadeReport(judged=1)


async def test_doubt_is_passed_on_and_the_last_answer_counts() -> None:
    """Both judgements are kept; the report says what it cost and gained."""
    first, second = LocalLikeJudge(default=DOUBT, name="local"), ScriptedJudge(default=ATTACK)
    opinion = await cascade(first, second).ask(TASK, ConcurrencyLimit(4))
    assert opinion.value == ATTACK
    assert opinion.threshold == DETECTION_F
    assert [item.model for item in opinion.judgements] == ["local", "scripted"]
    report = opinion.cascade
    assert (report.judged, report.in_doubt, report.passed_on, report.changed) == (1, 1, 1, 1)
    assert report.doubt_removed == pytest.approx(0.7 - 0.2)
    assert report.usage.cost_usd == pytest.approx(0.01)
    assert report.share_passed_on == 1.0


async def test_doubt_starts_at_its_bound() -> None:
    """Exactly the bound is doubt."""
    second = ScriptedJudge()
    first = ScriptedJudge(default=Neutrosophic(0.5, 0.4, 0.5))
    await cascade(first, second).ask(TASK, ConcurrencyLimit(4))
    assert second.asked


async def test_a_third_judge_is_asked_where_the_second_doubts_too() -> None:
    """As long as there is doubt and somebody left."""
    third = ScriptedJudge(default=NORMAL)
    opinion = await cascade(ScriptedJudge(default=DOUBT), ScriptedJudge(default=DOUBT), third).ask(
        TASK, ConcurrencyLimit(4)
    )
    assert opinion.value == NORMAL
    assert opinion.cascade.passed_on == 2


async def test_a_spent_allowance_leaves_the_answer_in_doubt() -> None:
    """It is withheld, not an error, and keeps its indeterminacy."""
    budget = Budget(BudgetConfig(calls_per_session=0), Clock())
    second = ScriptedJudge()
    opinion = await cascade(ScriptedJudge(default=DOUBT), second, budget=budget).ask(
        TASK, ConcurrencyLimit(4)
    )
    assert opinion.value == DOUBT
    assert opinion.cascade.withheld == 1
    assert not second.asked


async def test_a_judge_that_is_too_slow_leaves_the_answer_in_doubt() -> None:
    """The call still counts against the allowance."""
    budget = Budget(BudgetConfig(calls_per_session=1), Clock())
    slow = HoldingJudge()
    panel = cascade(ScriptedJudge(default=DOUBT), slow, budget=budget, seconds_per_call=0.001)
    opinion = await panel.ask(TASK, ConcurrencyLimit(4))
    assert opinion.value == DOUBT
    assert (opinion.cascade.failed, slow.cancelled) == (1, 1)
    with pytest.raises(BudgetError):
        budget.take("s")


async def test_a_judge_that_fails_raises() -> None:
    """Fail-fast is the rule here too."""
    with pytest.raises(EvaluationError):
        await cascade(ScriptedJudge(default=DOUBT), ScriptedJudge(default=cannot_judge())).ask(
            TASK, ConcurrencyLimit(4)
        )


async def test_where_partial_answers_count_the_answer_before_stands() -> None:
    """The failure is named."""
    judges = ScriptedJudge(default=DOUBT), ScriptedJudge(default=cannot_judge())
    opinion = await cascade(*judges, keep_partial=True).ask(TASK, ConcurrencyLimit(4))
    assert opinion.value == DOUBT
    assert len(opinion.failures) == 1
    assert opinion.cascade.failed == 1


async def test_who_goes_before_a_place_is_free_spends_nothing() -> None:
    """No call was made; one that is under way counts, for it may be billed."""
    limit, holding = ConcurrencyLimit(1), HoldingJudge()
    others: list[asyncio.Task[LayerJudgement]] = []

    class Local(LocalLikeJudge):
        async def judge(self, task: LayerTask) -> LayerJudgement:
            # The next place goes to somebody else.
            others.append(asyncio.create_task(limit.judge(holding, TASK)))
            await asyncio.sleep(0)
            return await super().judge(task)

    budget = Budget(BudgetConfig(calls_per_session=1), Clock())
    panel = cascade(Local(default=DOUBT), ScriptedJudge(), budget=budget)
    asking = asyncio.create_task(panel.ask(TASK, limit))
    await holding.is_asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    others[0].cancel()
    budget.take("s")
    with pytest.raises(BudgetError):
        budget.take("s")


async def test_a_cached_answer_does_not_touch_the_allowance() -> None:
    """Hits cost nothing."""

    class CachedJudge(ScriptedJudge):
        async def judge(self, task):
            return LayerJudgement(
                value=NORMAL, evaluation_type=task.evaluation_type, model="m", is_cached=True
            )

    budget = Budget(BudgetConfig(calls_per_session=1), Clock())
    panel = cascade(ScriptedJudge(default=DOUBT), CachedJudge(), budget=budget)
    for _ in range(3):
        assert (await panel.ask(TASK, ConcurrencyLimit(4))).value == NORMAL


async def test_a_cancelled_call_gives_its_place_back() -> None:
    """No call stays under way for ever."""
    budget = Budget(BudgetConfig(calls_per_day=2, calls_per_session=9), Clock())
    holding = HoldingJudge()
    panel = cascade(ScriptedJudge(default=DOUBT), holding, budget=budget)
    running = asyncio.create_task(panel.ask(TASK, ConcurrencyLimit(4)))
    await holding.is_asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    budget.take("other")
    with pytest.raises(BudgetError, match="day's allowance of calls"):
        budget.take("other")


def test_types_must_be_known_to_every_judge_of_the_cascade() -> None:
    """Whoever is asked must be able to answer."""
    panel = cascade(LocalLikeJudge(), ScriptedJudge())
    assert panel.can_ask("ayni_relational")
    assert not panel.can_ask("trust_trajectory")


def test_calls_are_counted_per_session_and_per_day() -> None:
    """A day later the day's count starts anew; the session's does not."""
    clock = Clock()
    budget = Budget(BudgetConfig(calls_per_session=2, calls_per_day=3), clock)
    for session in ("a", "a", "b"):
        budget.take(session)
        budget.settle(session, Usage(calls=1))
    with pytest.raises(BudgetError, match="session's"):
        budget.take("a")
    with pytest.raises(BudgetError, match="day's allowance of calls"):
        budget.take("b")
    clock.now += DAY_S
    budget.take("b")
    with pytest.raises(BudgetError, match="session's"):
        budget.take("a")


def test_money_is_counted_with_calls_under_way_at_the_dearest_price() -> None:
    """Once a price is known, calls at the same moment cannot exceed the allowance together."""
    clock = Clock()
    budget = Budget(BudgetConfig(usd_per_day=1.0), clock)
    budget.take("a")
    budget.settle("a", Usage(calls=1, cost_usd=0.4))
    budget.take("a")
    with pytest.raises(BudgetError, match="money"):
        budget.take("b")
    budget.settle("a", Usage(calls=1, cost_usd=0.4))
    clock.now += DAY_S + 1
    budget.take("b")


def test_a_call_that_was_not_made_is_given_back() -> None:
    """Settling without usage undoes the taking."""
    budget = Budget(BudgetConfig(calls_per_session=1, calls_per_day=1), Clock())
    budget.take("a")
    budget.settle("a", None)
    budget.take("a")


def test_sessions_are_forgotten_oldest_first(monkeypatch) -> None:
    """Memory is bounded."""
    from promptguard.evaluators import cascade as module

    monkeypatch.setattr(module, "_SESSIONS_REMEMBERED", 2)
    budget = Budget(BudgetConfig(calls_per_session=1), Clock())
    for session in ("a", "b", "c"):
        budget.take(session)
    budget.take("a")
    with pytest.raises(BudgetError):
        budget.take("c")


def test_reports_add_up() -> None:
    """An empty report changes nothing and divides nothing by zero."""
    one = CascadeReport(judged=2, passed_on=1, doubt_before=0.8, doubt_after=0.2)
    assert one + CascadeReport() == one
    assert (one + one).share_passed_on == 0.5
    assert CascadeReport().share_passed_on == CascadeReport().doubt_removed == 0.0
