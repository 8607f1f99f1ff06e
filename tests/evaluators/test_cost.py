"""What evaluations cost: per evaluation type and model, failures included, within a budget."""

import asyncio

import httpx
import pytest
from loopback import Script, answer, local, seams_of
from scripted_judges import (
    ATTACK,
    DOUBT,
    NORMAL,
    HoldingJudge,
    LocalLikeJudge,
    ScriptedJudge,
    ScriptedProvider,
)

from promptguard.config import BudgetConfig, PromptGuardConfig
from promptguard.core.decision import Decision
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.errors import BudgetError, ConfigError, EvaluationError, JudgeReplyError
from promptguard.evaluation import PromptGuard
from promptguard.evaluators.cascade import DAY_S, Budget
from promptguard.evaluators.llm import LlmJudge
from promptguard.evaluators.opinion import UsageRow
from promptguard.providers import open_provider
from promptguard.testing import ManualClock
from promptguard.usage import Usage

VERDICT = '{"truth": 0.1, "indeterminacy": 0.2, "falsehood": 0.9, "reasoning": "r"}'
ONE = "ayni_relational"


def guard_with(*judges, **settings) -> PromptGuard:
    return PromptGuard(PromptGuardConfig(**settings), judges=judges)


def cascade(*judges, **budget) -> PromptGuard:
    settings = BudgetConfig(**budget)
    return guard_with(*judges, mode="cascade", evaluation_type=ONE, budget=settings)


def judge_at(*answers: httpx.Response, **config) -> LlmJudge:
    return LlmJudge(open_provider("box/m", local(**config), seams=seams_of(Script(*answers))))


class PaidJudge(ScriptedJudge):
    """A judge at an endpoint."""

    is_free = False

    def __init__(self, *, is_price_known: bool = True, **more) -> None:
        super().__init__(**more)
        self.is_price_known = is_price_known


class HoldingPaidJudge(HoldingJudge):
    is_free = False
    is_price_known = True


async def test_replies_without_a_verdict_are_counted_on_the_error() -> None:
    """Two answers were paid for."""
    with pytest.raises(JudgeReplyError) as caught:
        await guard_with(LlmJudge(ScriptedProvider(["no", "no"])), evaluation_type=ONE).evaluate(
            "x"
        )
    assert (caught.value.usage.calls, caught.value.usage.cost_usd) == (2, pytest.approx(0.004))


async def test_retries_failures_and_unreadable_replies_add_up_to_the_calls_made() -> None:
    """Five requests, five calls: 503, no verdict, 429, an error inside a 200, the verdict."""
    script = [
        httpx.Response(503),
        httpx.Response(200, json=answer("no verdict")),
        httpx.Response(429),
        httpx.Response(200, json={"error": {"code": 502}}),
        httpx.Response(200, json=answer(VERDICT)),
    ]
    judge = judge_at(*script, prices={"box/m": {"input": 1.0, "output": 1.0}})
    found = await guard_with(judge, evaluation_type=ONE).evaluate("x")
    assert found.usage.calls == 5
    assert found.usage.cost_usd == pytest.approx(30e-6)
    assert found.usage.is_cost_known


async def test_usage_is_told_per_evaluation_type_and_model() -> None:
    """The developer's layer has a type of its own."""
    judges = ScriptedJudge(name="a"), ScriptedJudge(name="b")
    found = await guard_with(*judges, mode="parallel").evaluate("x", system="y")
    rows = {(row.evaluation_type, row.model): row.usage.calls for row in found.usage_rows}
    assert rows == {
        (kind, model): 1
        for kind in (ONE, "relational_structure", "trusted_layer_coherence")
        for model in ("a", "b")
    }
    assert found.usage.cost_usd == pytest.approx(0.06)


async def test_failures_that_are_left_out_of_a_result_are_still_paid_for() -> None:
    """The usage holds what the failed judge used up."""
    broken = LlmJudge(ScriptedProvider(["no", "no", "no", "no"]))
    guard = guard_with(broken, ScriptedJudge(name="b"), mode="parallel", on_partial="continue")
    found = await guard.evaluate("x")
    assert found.degraded
    assert found.usage.calls == 6
    first = [row for row in found.usage_rows if row.evaluation_type == ONE]
    assert (
        {row.model: row.usage.calls for row in first}
        == {row.model: row.usage.calls for row in found.usage_rows if row.evaluation_type == ONE}
        == {
            "vendor/model": 2,
            "b": 1,
        }
    )


async def test_a_type_that_nobody_could_judge_costs_what_each_of_them_cost() -> None:
    """The others' errors are told and paid for beside the first one's."""
    judges = []
    for name in ("a", "b"):
        fault = EvaluationError(
            f"{name} could not.", evaluation_type=ONE, model=name, usage=Usage(calls=2)
        )
        judges.append(ScriptedJudge({ONE: fault}, name=name))
    guard = guard_with(*judges, mode="parallel", on_partial="continue")
    found = await guard.evaluate("x")
    assert found.failures == ("a could not.", "b could not.")
    assert {
        row.model: row.usage.calls for row in found.usage_rows if row.evaluation_type == ONE
    } == {
        "a": 2,
        "b": 2,
    }
    assert sorted(map(str, found.usage_rows)) == sorted(map(str, guard.usage_report()))


async def test_a_guard_counts_evaluations_that_raised() -> None:
    """Nothing that was paid for is lost with an error."""
    guard = guard_with(LlmJudge(ScriptedProvider(["no", "no"])), evaluation_type=ONE)
    with pytest.raises(EvaluationError):
        await guard.evaluate("x")
    assert guard.usage_report() == (
        UsageRow(
            evaluation_type=ONE,
            model="vendor/model",
            usage=Usage(calls=2, input_tokens=200, output_tokens=40, cost_usd=0.004),
        ),
    )


async def test_a_guard_counts_calls_that_were_cancelled() -> None:
    """They may have been billed, so their cost is unknown."""
    holding = HoldingPaidJudge()
    guard = guard_with(holding, evaluation_type=ONE)
    running = asyncio.create_task(guard.evaluate("x"))
    await holding.is_asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (row,) = guard.usage_report()
    assert row.usage == Usage(calls=1, unpriced_calls=1)


async def test_a_call_that_took_too_long_is_part_of_the_usage() -> None:
    """With an unknown cost."""
    guard = cascade(LocalLikeJudge(default=DOUBT, usage=Usage()), HoldingPaidJudge())
    settings = guard.config.budget.model_copy(update={"seconds_per_call": 0.001})
    guard.config = guard.config.model_copy(update={"budget": settings})
    found = await guard.evaluate("x")
    assert found.usage == Usage(calls=1, unpriced_calls=1)
    assert found.decision is Decision.CAUTION


# --- the budget ------------------------------------------------------------------------------


@pytest.mark.parametrize("indeterminacy", [0.4, 0.49, 0.7])
@pytest.mark.parametrize("strategy", ["max_falsehood", "average", "voting"])
async def test_a_spent_budget_is_caution_and_never_allow(
    indeterminacy: float, strategy: str
) -> None:
    """Also where the doubt is small, or a merge makes it small."""
    doubt = Neutrosophic(0.9, indeterminacy, 0.05)
    first = LocalLikeJudge({"relational_structure": doubt}, usage=Usage())
    guard = guard_with(
        first,
        ScriptedJudge(),
        mode="cascade",
        ensemble_strategy=strategy,
        budget=BudgetConfig(calls_per_session=0),
    )
    found = await guard.evaluate("x", system="y")
    assert found.cascade.withheld == 1
    assert (found.decision, found.label) == ("caution", "borderline")


async def test_an_unknown_price_is_refused_with_advice() -> None:
    """Before any call is made."""
    second = PaidJudge(is_price_known=False, name="lab/m")
    guard = cascade(LocalLikeJudge(default=DOUBT), second)
    with pytest.raises(ConfigError, match=r"price of lab/m.*endpoint\.prices.*unknown_price"):
        await guard.evaluate("x")
    assert not second.asked


async def test_an_unknown_price_is_allowed_by_a_setting() -> None:
    """Then calls are limited, and the result says that the cost is unknown."""
    unpriced = Usage(calls=1, unpriced_calls=1)
    second = PaidJudge(is_price_known=False, usage=unpriced, default=ATTACK)
    first = LocalLikeJudge(default=DOUBT, usage=Usage())
    guard = cascade(first, second, unknown_price="allow", calls_per_day=3)
    decisions = [(await guard.evaluate("x")).decision for _ in range(5)]
    assert decisions == ["block"] * 3 + ["caution"] * 2
    (row,) = guard.usage_report()
    assert row.usage == Usage(calls=3, unpriced_calls=3)


async def test_a_model_at_an_endpoint_without_a_price_is_asked_only_when_it_has_one() -> None:
    """The price comes with the endpoint's settings."""
    first = LocalLikeJudge(default=DOUBT, usage=Usage())
    with pytest.raises(ConfigError, match="price of box/m"):
        await cascade(first, judge_at()).evaluate("x")
    prices = {"box/m": {"input": 1.0, "output": 1.0}}
    priced = judge_at(httpx.Response(200, json=answer(VERDICT)), prices=prices)
    found = await cascade(first, priced).evaluate("x")
    assert found.decision is Decision.BLOCK
    assert found.usage.is_cost_known


def test_retries_count_against_the_allowance_of_calls() -> None:
    """A question that took three calls used up three."""
    budget = Budget(BudgetConfig(calls_per_session=3, calls_per_day=4), ManualClock())
    budget.take("a")
    budget.settle("a", Usage(calls=3))
    with pytest.raises(BudgetError, match="session's"):
        budget.take("a")
    budget.take("b")
    budget.settle("b", Usage(calls=1))
    with pytest.raises(BudgetError, match="day's allowance of calls"):
        budget.take("b")


def test_a_call_of_unknown_cost_counts_at_the_dearest_price() -> None:
    """So that timeouts cannot empty the purse unseen."""
    clock = ManualClock()
    budget = Budget(BudgetConfig(usd_per_day=1.0), clock)
    for usage in (Usage(calls=1, cost_usd=0.4), Usage(calls=1, unpriced_calls=1)):
        budget.take("a")
        budget.settle("a", usage)
    with pytest.raises(BudgetError, match="money"):
        budget.take("a")
    clock.advance(DAY_S + 1)
    budget.take("a")


async def test_a_failed_call_spends_what_it_cost() -> None:
    """The error's usage settles the question."""
    broken = LlmJudge(ScriptedProvider(["no", "no"]))
    guard = cascade(LocalLikeJudge(default=DOUBT, usage=Usage()), broken, usd_per_day=0.005)
    with pytest.raises(EvaluationError):
        await guard.evaluate("x")
    found = await guard.evaluate("x")
    assert found.cascade.withheld == 1


async def test_sure_answers_cost_nothing() -> None:
    """No call, no row."""
    found = await cascade(LocalLikeJudge(default=NORMAL, usage=Usage()), PaidJudge()).evaluate("x")
    assert found.usage_rows == ()
    assert found.usage == Usage()
