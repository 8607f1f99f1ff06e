"""The capability in a real Pydantic AI agent with a scripted model."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="pinned in requirements/integrations.txt")

from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from spoken import ATTACK, CLEAN, HARMLESS, POISONED, STEERS, THANKS

from promptguard.config import ControllerConfig
from promptguard.integrations.pydantic_ai import GuardCapability
from promptguard.risk.ledger import STEERING, STRIPPED


def agent_with(
    result: str, *answers: Any, config: ControllerConfig | None = None
) -> tuple[Agent, list[Any], GuardCapability]:
    seen: list[Any] = []
    script = list(answers)

    def model(messages: list[Any], info: Any) -> ModelResponse:
        seen.append([*messages, info.instructions])
        return ModelResponse(parts=[script.pop(0)])

    capability = GuardCapability(config)
    agent = Agent(FunctionModel(model), capabilities=[capability], instructions="You help.")

    @agent.tool_plain
    def weather() -> str:
        """Return the weather."""
        return result

    return agent, seen, capability


async def test_a_harmless_task_with_a_tool_passes() -> None:
    """The model sees the tool's result, and its answer comes back."""
    agent, seen, _ = agent_with(CLEAN, ToolCallPart("weather"), TextPart("It is sunny."))
    done = await agent.run(HARMLESS)
    assert done.output == "It is sunny."
    assert CLEAN in str(seen[-1])


async def test_an_attack_is_refused_without_the_model() -> None:
    """The refusal is the run's output."""
    agent, seen, _ = agent_with(CLEAN, TextPart("never"))
    done = await agent.run(ATTACK)
    assert done.output == "I'm sorry, but I can't assist with that."
    assert seen == []


async def test_a_poisoned_result_is_stripped_and_the_task_goes_on() -> None:
    """The model gets the note, answers, and the next question passes too."""
    answers = (ToolCallPart("weather"), TextPart("It is sunny."), TextPart("A light jacket."))
    agent, seen, _ = agent_with(POISONED, *answers)
    done = await agent.run(HARMLESS)
    assert done.output == "It is sunny."
    again = await agent.run(THANKS, message_history=done.all_messages())
    assert again.output == "A light jacket."
    assert STRIPPED in str(seen[-1])
    assert "evil" not in str(seen)


async def test_two_conversations_do_not_share_a_session() -> None:
    """One user's attack changes nothing for another."""
    agent, _, capability = agent_with(CLEAN, TextPart("Sunny."))
    await agent.run(ATTACK, conversation_id="one")
    done = await agent.run(HARMLESS, conversation_id="two")
    assert done.output == "Sunny."
    one, two = [
        await capability.guard.judge("How do I bake bread?", name) for name in ("one", "two")
    ]
    assert (one.state.profile.blocked, two.state.profile.blocked) == (1, 0)


async def test_a_steered_turn_reaches_the_model_with_a_notice() -> None:
    """After the agent's own instructions, before every call."""
    answers = (ToolCallPart("weather"), TextPart("It is sunny."))
    agent, seen, _ = agent_with(CLEAN, *answers, config=STEERS)
    assert (await agent.run(HARMLESS)).output == "It is sunny."
    assert [call[-1] for call in seen] == [f"You help.\n\n{STEERING}"] * 2
