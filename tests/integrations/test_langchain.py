"""The middleware in a real LangChain agent with a scripted model."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("langchain", reason="pinned in requirements/integrations.txt")

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from spoken import ATTACK, CLEAN, HARMLESS, POISONED, STEERS, THANKS

from promptguard.integrations.langchain import GuardMiddleware
from promptguard.risk.ledger import STEERING, STRIPPED


class ScriptedModel(BaseChatModel):
    """Answers in order, and keeps what it was sent."""

    answers: list[Any]
    seen: list[list[BaseMessage]]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> ScriptedModel:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.seen.append(list(messages))
        return ChatResult(generations=[ChatGeneration(message=self.answers.pop(0))])


def calls_weather() -> AIMessage:
    call = {"name": "weather", "args": {"city": "Lisbon"}, "id": "c1", "type": "tool_call"}
    return AIMessage(content="", tool_calls=[call])


def agent_with(result: str, *answers: Any, **made: Any) -> tuple[Any, ScriptedModel]:
    def weather(city: str) -> str:
        """Return the weather."""
        return result

    model = ScriptedModel(answers=list(answers), seen=[])
    middleware = GuardMiddleware(made.pop("config", None))
    agent = create_agent(
        model, [weather], middleware=[middleware], checkpointer=InMemorySaver(), **made
    )
    return agent, model


def asks(agent: Any, text: str, thread: str) -> list[BaseMessage]:
    config = {"configurable": {"thread_id": thread}}
    return list(agent.invoke({"messages": [("user", text)]}, config)["messages"])


def test_a_harmless_task_with_a_tool_passes() -> None:
    """The model sees the tool's result, and its answer comes back."""
    agent, model = agent_with(CLEAN, calls_weather(), AIMessage("It is sunny."))
    messages = asks(agent, HARMLESS, "t")
    assert messages[-1].content == "It is sunny."
    assert model.seen[-1][-1].content == CLEAN


def test_an_attack_ends_the_run_before_the_model() -> None:
    """The refusal is the answer."""
    agent, model = agent_with(CLEAN, AIMessage("never"))
    messages = asks(agent, ATTACK, "t")
    assert messages[-1].content == "I'm sorry, but I can't assist with that."
    assert model.seen == []


def test_a_poisoned_result_is_stripped_and_the_task_goes_on() -> None:
    """The model gets the note, answers, and the next question passes too."""
    answers = (calls_weather(), AIMessage("It is sunny."), AIMessage("A light jacket."))
    agent, model = agent_with(POISONED, *answers)
    assert asks(agent, HARMLESS, "t")[-1].content == "It is sunny."
    assert model.seen[-1][-1].content == STRIPPED
    assert asks(agent, THANKS, "t")[-1].content == "A light jacket."
    assert all(POISONED not in str(m.content) for call in model.seen for m in call)


def test_two_threads_do_not_share_a_session() -> None:
    """One user's attack changes nothing for another."""
    agent, _ = agent_with(CLEAN, AIMessage("Sunny."), AIMessage("Sunny."))
    asks(agent, ATTACK, "one")
    assert asks(agent, HARMLESS, "two")[-1].content == "Sunny."
    guard = agent_guard(agent)
    assert guard.judge(HARMLESS, "two").verdict.accumulated_risk < 0.5


async def test_a_steered_turn_reaches_the_model_with_a_notice() -> None:
    """After the system prompt, before every call, and never in the history."""
    answers = (calls_weather(), AIMessage("It is sunny."), AIMessage("A light jacket."))
    agent, model = agent_with(CLEAN, *answers, config=STEERS, system_prompt="You help.")
    messages = asks(agent, HARMLESS, "t")
    config = {"configurable": {"thread_id": "t"}}
    done = await agent.ainvoke({"messages": [("user", THANKS)]}, config)
    assert [call[0].content for call in model.seen] == [f"You help.\n\n{STEERING}"] * 3
    assert all(STEERING not in str(m.content) for m in [*messages, *done["messages"]])
    assert "promptguard_notice" not in done


def agent_guard(agent: Any) -> Any:
    node = agent.nodes["GuardMiddleware.before_model"].bound
    return node.func.__self__.guard


async def test_the_async_hooks_decide_alike() -> None:
    """Attack refused, poisoned result stripped."""
    agent, model = agent_with(POISONED, calls_weather(), AIMessage("It is sunny."))
    config = {"configurable": {"thread_id": "a"}}
    done = await agent.ainvoke({"messages": [("user", HARMLESS)]}, config)
    assert done["messages"][-1].content == "It is sunny."
    assert model.seen[-1][-1].content == STRIPPED
    done = await agent.ainvoke({"messages": [("user", ATTACK)]}, config)
    assert done["messages"][-1].content == "I'm sorry, but I can't assist with that."
