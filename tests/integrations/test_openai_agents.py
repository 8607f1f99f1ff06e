"""The guardrails in the real Agents SDK with a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("agents", reason="pinned in requirements/integrations.txt")

from agents import (
    Agent,
    InputGuardrailTripwireTriggered,
    ModelResponse,
    RunConfig,
    Runner,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.models.interface import Model
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from spoken import ATTACK, CLEAN, HARMLESS, POISONED, STEERS

from promptguard.errors import Blocked
from promptguard.integrations.openai_agents import Guardrails
from promptguard.risk.ledger import STEERING, STRIPPED

set_tracing_disabled(True)


class ScriptedModel(Model):
    """Answers in order, and keeps what it was sent."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.seen: list[Any] = []
        self.told: list[str | None] = []

    async def get_response(self, **call: Any) -> ModelResponse:
        self.seen.append(call["input"])
        self.told.append(call["system_instructions"])
        return ModelResponse(output=[self.answers.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise AssertionError("The agents of these tests do not stream.")


def says(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(
        id="m", content=[part], role="assistant", status="completed", type="message"
    )


def calls_weather() -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        arguments="{}", call_id="c1", name="weather", type="function_call"
    )


def agent_with(rails: Guardrails, result: str, *answers: Any) -> tuple[Agent, ScriptedModel]:
    @function_tool(tool_output_guardrails=[rails.tool_output])
    def weather() -> str:
        """Return the weather."""
        return result

    model = ScriptedModel(*answers)
    agent = Agent(
        name="helper",
        instructions="You help with travel.",
        model=model,
        tools=[weather],
        input_guardrails=[rails.input],
        output_guardrails=[rails.output],
    )
    return agent, model


async def test_a_harmless_task_with_a_tool_passes() -> None:
    """The model sees the tool's output, and its answer comes back."""
    agent, model = agent_with(Guardrails(), CLEAN, calls_weather(), says("It is sunny."))
    done = await Runner.run(agent, HARMLESS)
    assert done.final_output == "It is sunny."
    assert CLEAN in str(model.seen[-1])


async def test_an_attack_trips_the_wire_before_the_model() -> None:
    """The verdict comes with the exception."""
    agent, model = agent_with(Guardrails(), CLEAN, says("never"))
    with pytest.raises(InputGuardrailTripwireTriggered) as tripped:
        await Runner.run(agent, ATTACK)
    assert tripped.value.guardrail_result.output.output_info["action"] == "block"
    assert model.seen == []


async def test_a_poisoned_output_is_stripped_and_the_task_goes_on() -> None:
    """The model gets the note and answers."""
    agent, model = agent_with(Guardrails(), POISONED, calls_weather(), says("It is sunny."))
    done = await Runner.run(agent, HARMLESS)
    assert done.final_output == "It is sunny."
    assert STRIPPED in str(model.seen[-1])
    assert "evil" not in str(model.seen[-1])


async def test_two_users_do_not_share_a_session() -> None:
    """The session is what the caller's context says."""
    rails = Guardrails(session=lambda context: context["user"])
    agent, _ = agent_with(rails, CLEAN, says("It is sunny."), says("It is sunny."))
    with pytest.raises(InputGuardrailTripwireTriggered):
        await Runner.run(agent, ATTACK, context={"user": "one"})
    done = await Runner.run(agent, HARMLESS, context={"user": "two"})
    assert done.final_output == "It is sunny."
    one, two = [
        await rails.guard.judge("How do I bake bread?", session_id=name) for name in ("one", "two")
    ]
    assert one.state.profile.blocked == 1
    assert two.state.profile.blocked == 0


async def test_a_steered_turn_reaches_the_model_with_a_notice() -> None:
    """After the instructions, before every call of the run."""
    rails = Guardrails(STEERS)
    agent, model = agent_with(rails, CLEAN, calls_weather(), says("It is sunny."))
    config = RunConfig(call_model_input_filter=rails.model_input)
    assert (await Runner.run(agent, HARMLESS, run_config=config)).final_output == "It is sunny."
    assert model.told == [f"You help with travel.\n\n{STEERING}"] * 2


async def test_the_models_input_is_cleaned_for_tools_without_a_guardrail() -> None:
    """The poisoned output is stripped, and an attack does not reach the model."""

    @function_tool
    def weather() -> str:
        """Return the weather."""
        return POISONED

    rails, model = Guardrails(), ScriptedModel(calls_weather(), says("It is sunny."))
    agent = Agent(name="helper", model=model, tools=[weather])
    config = RunConfig(call_model_input_filter=rails.model_input)
    assert (await Runner.run(agent, HARMLESS, run_config=config)).final_output == "It is sunny."
    assert STRIPPED in str(model.seen[-1])
    assert "evil" not in str(model.seen)
    with pytest.raises(Blocked):
        await Runner.run(agent, ATTACK, run_config=config)
