"""Several judges, asked together, with a bound and with failures."""

import asyncio

import pytest
from scripted_judges import (
    ATTACK,
    NORMAL,
    HoldingJudge,
    LocalLikeJudge,
    ScriptedJudge,
    cannot_judge,
)

from promptguard.config import PromptGuardConfig
from promptguard.core.layers import DETECTION_F, LayerPriority
from promptguard.core.prompt import LayerText
from promptguard.errors import ConfigError, EvaluationError, InputError
from promptguard.evaluators.panel import ConcurrencyLimit, ParallelPanel, evaluate_layers
from promptguard.evaluators.registry import JUDGES, named_judge, threshold_of
from promptguard.protocols import LayerTask

TASK = LayerTask(evaluation_type="ayni_relational", content="text", layer="USER")
SYSTEM = LayerText(priority=LayerPriority.SYSTEM, name="SYSTEM", content="rules")
USER = LayerText(priority=LayerPriority.USER, name="USER", content="text")
TYPES = ("ayni_relational", "relational_structure")


def evaluate(layers, judges, *, limit: int, turn: int = 0):
    """Ask the judges in parallel about both types."""
    return evaluate_layers(
        layers,
        panel=ParallelPanel(judges),
        limit=ConcurrencyLimit(limit),
        evaluation_types=TYPES,
        turn=turn,
    )


async def until(condition) -> None:
    """Let other tasks run until the condition holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never held")


async def test_the_word_of_several_judges_is_their_mean() -> None:
    """Each judgement is kept, and so is the mean of their thresholds."""
    panel = ParallelPanel([ScriptedJudge(default=ATTACK), LocalLikeJudge(default=NORMAL)])
    opinion = await panel.ask(TASK, ConcurrencyLimit(4))
    assert opinion.value.falsehood == pytest.approx((0.9 + 0.05) / 2)
    assert opinion.threshold == pytest.approx((0.65 + 0.5) / 2)
    assert len(opinion.judgements) == 2


async def test_one_judges_word_is_taken_as_it_is() -> None:
    """The single mode is the parallel mode with one judge."""
    opinion = await ParallelPanel([ScriptedJudge(default=ATTACK)]).ask(TASK, ConcurrencyLimit(1))
    assert opinion.value == ATTACK


async def test_the_first_failure_cancels_the_rest() -> None:
    """Nobody goes on judging for a result that will not be used."""
    holding = HoldingJudge()
    panel = ParallelPanel([holding, ScriptedJudge(default=cannot_judge())])
    with pytest.raises(EvaluationError):
        await panel.ask(TASK, ConcurrencyLimit(4))
    assert holding.cancelled == 1


async def test_partial_answers_count_where_they_may() -> None:
    """The failure is named, the rest is the answer."""
    judges = [ScriptedJudge(default=ATTACK), ScriptedJudge(default=cannot_judge())]
    opinion = await ParallelPanel(judges, keep_partial=True).ask(TASK, ConcurrencyLimit(4))
    assert opinion.value == ATTACK
    assert len(opinion.failures) == 1


async def test_no_answer_at_all_is_an_error_even_then() -> None:
    """Could not judge is never safe."""
    panel = ParallelPanel([ScriptedJudge(default=cannot_judge())], keep_partial=True)
    with pytest.raises(EvaluationError):
        await panel.ask(TASK, ConcurrencyLimit(4))


@pytest.mark.parametrize("fault", [RuntimeError("text"), InputError("text"), TimeoutError()])
async def test_what_a_judge_raises_becomes_an_evaluation_error(fault: Exception) -> None:
    """With type, model and layer."""
    with pytest.raises(EvaluationError) as caught:
        await ConcurrencyLimit(1).judge(ScriptedJudge(default=fault), TASK)
    assert (caught.value.evaluation_type, caught.value.model, caught.value.layer) == (
        "ayni_relational",
        "scripted",
        "USER",
    )


async def test_no_more_run_at_once_than_allowed() -> None:
    """The bound holds over layers, types and models together."""
    holding = HoldingJudge()
    running = asyncio.create_task(evaluate([SYSTEM, USER], [holding, holding], limit=3))
    await until(lambda: holding.waiting == 3)
    holding.release.set()
    await running
    assert holding.most_waiting == 3
    assert len(holding.asked) == 2 * (1 + 2)


async def test_users_get_the_ensemble_and_developers_their_own_type() -> None:
    """The ensemble applies to the user's layers only."""
    judge = ScriptedJudge()
    await evaluate([SYSTEM, USER], [judge], limit=4, turn=2)
    assert sorted((task.layer, task.evaluation_type) for task in judge.asked) == [
        ("SYSTEM", "trusted_layer_coherence"),
        ("USER", "ayni_relational"),
        ("USER", "relational_structure"),
    ]
    assert {task.turn for task in judge.asked} == {2}


async def test_a_judge_that_does_not_know_the_trusted_type_is_not_asked() -> None:
    """The layer then carries its default value."""
    judge = LocalLikeJudge()
    system, _ = await evaluate([SYSTEM, USER], [judge], limit=4)
    assert not system.was_asked
    assert {task.layer for task in judge.asked} == {"USER"}


async def test_a_failing_layer_cancels_the_other_layers() -> None:
    """Fail-fast goes across layers."""

    class FailsOnSystem(HoldingJudge):
        async def judge(self, task):
            if task.layer == "SYSTEM":
                raise cannot_judge()
            return await super().judge(task)

    judge = FailsOnSystem()
    with pytest.raises(EvaluationError):
        await evaluate([USER, SYSTEM], [judge], limit=8)
    assert judge.cancelled == 2


async def test_cancelling_the_caller_cancels_the_judges() -> None:
    """Nothing runs on behind a client that went away."""
    holding = HoldingJudge()
    running = asyncio.create_task(evaluate([USER], [holding], limit=8))
    await until(lambda: holding.waiting == 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert holding.cancelled == 2


def test_a_judge_can_be_registered_under_a_name() -> None:
    """What follows the colon is handed to its factory."""
    JUDGES.register("mine")(lambda argument, config: ScriptedJudge(name=f"mine:{argument}"))
    try:
        assert named_judge("mine:x:y", PromptGuardConfig()).name == "mine:x:y"
    finally:
        del JUDGES._parts["mine"]


@pytest.mark.parametrize("model", ["x-ai/grok-4-fast:free", "ollama/llama3.2", "gpt-4o"])
def test_a_model_at_an_endpoint_is_no_named_judge(model: str) -> None:
    """A colon in a model's name does not make it one."""
    assert named_judge(model, PromptGuardConfig()) is None


def test_without_an_embedded_judge_the_error_says_how_to_name_a_model(monkeypatch) -> None:
    """An installation may lack it."""
    from promptguard.evaluators import registry

    monkeypatch.setattr(registry, "JUDGES", type(JUDGES)("judge"))
    monkeypatch.setattr(registry, "_MODULES", {"local": "no_such_module"})
    with pytest.raises(ConfigError, match=r"models=\["):
        named_judge("local", PromptGuardConfig())


def test_a_judge_may_know_its_own_threshold() -> None:
    """Others stand on the scale for LLM judges."""
    assert threshold_of(LocalLikeJudge()) == 0.5
    assert threshold_of(ScriptedJudge()) == DETECTION_F
