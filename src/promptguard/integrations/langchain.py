"""LangChain: an agent middleware that stops attacks and strips poisoned tool results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, NotRequired

from promptguard.config import ControllerConfig
from promptguard.conversation import text_of
from promptguard.guard import Guard
from promptguard.integrations.extras import last_asked, missing
from promptguard.turns.exchanges import without_withheld
from promptguard.turns.result import TurnResult

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config
    from langchain.agents.middleware.types import PrivateStateAttr
    from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
except ImportError as error:
    raise missing("langchain", error) from None


class GuardState(AgentState[Any]):
    """The agent's state, with what the model is to be told of the latest turn."""

    # Private: the notice is for the next call of the model and no output of the agent.
    promptguard_notice: NotRequired[Annotated[str, PrivateStateAttr]]  # type: ignore[valid-type]


class GuardMiddleware(AgentMiddleware):
    """Give it to `create_agent(middleware=[GuardMiddleware()])`.

    A blocked turn ends the run with the refusal; a steered one reaches the model with a notice
    after the system prompt, which the history does not keep. A poisoned tool result is replaced
    before it enters the conversation. The session is the thread; without a checkpointer the
    conversation is judged as a whole. `system` is the agent's system prompt, which judges answers
    and turns in the light of the application.
    """

    state_schema = GuardState

    def __init__(
        self,
        config: ControllerConfig | None = None,
        *,
        guard: Guard | None = None,
        system: str | None = None,
    ) -> None:
        super().__init__()
        self.guard = guard or Guard(config)
        self._system = system

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Judge what is new; end the run where it is blocked."""
        messages = state["messages"]
        result = self.guard.judge(messages, _session(runtime), self._system)
        return self._update(messages, result)

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Judge as `before_model` does, without holding up the event loop."""
        return await asyncio.to_thread(self.before_model, state, runtime)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Call the model, with a notice where the turn is steered."""
        return handler(_noticed(request))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Call the model, with a notice where the turn is steered."""
        return await handler(_noticed(request))

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Judge the answer; replace it by the refusal where it must not be shown."""
        answer = state["messages"][-1]
        text = text_of(answer.content) if isinstance(answer, AIMessage) else ""
        if not text:
            return None
        verdict = self.guard.judge_reply(text, _session(runtime), self._system or "")
        if not verdict.is_blocked:
            return None
        # With the id of the answer: the reducer replaces a message of the same id and appends
        # others.
        return {"messages": [AIMessage(content=self.guard.config.refusal, id=answer.id)]}

    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Judge as `after_model` does, without holding up the event loop."""
        return await asyncio.to_thread(self.after_model, state, runtime)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Run the tool, and replace its result where it carries orders."""
        return self._screened(request, handler(request))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run the tool, and replace its result where it carries orders."""
        result = await handler(request)
        return await asyncio.to_thread(self._screened, request, result)

    def _update(self, messages: Sequence[Any], result: TurnResult) -> dict[str, Any]:
        if result.is_blocked:
            refusal = AIMessage(content=self.guard.config.refusal)
            return {"messages": [refusal], "jump_to": "end"}
        cleaned = without_withheld(messages, result.withheld)
        # Messages replace those of the same id.
        replaced = [cleaned[index] for index in result.withheld]
        return {"messages": replaced, "promptguard_notice": result.notice}

    def _screened(self, request: Any, result: Any) -> Any:
        # A tool may return a command for the graph instead of a message.
        if not isinstance(result, ToolMessage):
            return result
        text = text_of(result.content)
        screened = self.guard.screen(text, last_asked(request.state["messages"]))
        return result if screened == text else result.model_copy(update={"content": screened})


def _noticed(request: Any) -> Any:
    notice = request.state.get("promptguard_notice")
    if not notice:
        return request
    told = request.system_message.text if request.system_message else ""
    words = f"{told}\n\n{notice}" if told else notice
    return request.override(system_message=SystemMessage(content=words))


def _session(runtime: Any) -> str | None:
    # Without a checkpointer there is no thread to name the session by.
    info = getattr(runtime, "execution_info", None)
    return getattr(info, "thread_id", None)
