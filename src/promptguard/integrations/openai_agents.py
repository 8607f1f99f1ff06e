"""OpenAI Agents SDK: guardrails for input, output and tool output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from promptguard.config import ControllerConfig
from promptguard.errors import Blocked
from promptguard.guard import AsyncGuard
from promptguard.integrations.extras import last_asked, missing
from promptguard.turns.exchanges import without_withheld

try:
    from agents import (
        GuardrailFunctionOutput,
        InputGuardrail,
        OutputGuardrail,
        ToolGuardrailFunctionOutput,
        ToolOutputGuardrail,
    )
    from agents.run import ModelInputData
except ImportError as error:
    raise missing("openai-agents", error) from None

Session = Callable[[Any], str | None]
"""Returns the session's id from the object that was given to `Runner.run(context=...)`."""


class Guardrails:
    """Holds `input`, `output` and `tool_output`, to be given to agents and tools.

    `session` names the conversation; without it the input is judged as a whole. A blocked turn
    or answer trips the wire; a poisoned tool output is replaced and the run goes on.
    `model_input` is for `RunConfig(call_model_input_filter=...)`: it judges what is new before
    every call of the model, strips the outputs of all tools, and tells the model of a steered
    turn; where it blocks, it raises Blocked.
    """

    def __init__(
        self,
        config: ControllerConfig | None = None,
        *,
        guard: AsyncGuard | None = None,
        session: Session = lambda _: None,
    ) -> None:
        self.guard = guard or AsyncGuard(config)
        self._session = session
        # Not in parallel: a blocked turn must not have reached the model.
        self.input = InputGuardrail(self._input, name="promptguard", run_in_parallel=False)
        self.output = OutputGuardrail(self._output, name="promptguard")
        self.tool_output = ToolOutputGuardrail(self._tool_output, name="promptguard")

    async def _input(self, context: Any, agent: Any, given: Any) -> Any:
        result = await self.guard.judge(given, self._session(context.context), _instructions(agent))
        return GuardrailFunctionOutput(
            output_info=result.verdict.to_dict(), tripwire_triggered=result.is_blocked
        )

    async def model_input(self, data: Any) -> Any:
        """Return what the model may see: without poisoned outputs, with a notice where steered."""
        given = data.model_data
        result = await self.guard.judge(
            given.input, self._session(data.context), given.instructions
        )
        # The filter can only return an input or raise; it has no wire to trip.
        result.raise_if_blocked()
        told = (given.instructions, result.notice)
        return ModelInputData(
            input=without_withheld(given.input, result.withheld),
            instructions="\n\n".join(words for words in told if words) or None,
        )

    async def _output(self, context: Any, agent: Any, output: Any) -> Any:
        verdict = await self.guard.judge_reply(
            str(output), self._session(context.context), _instructions(agent) or ""
        )
        return GuardrailFunctionOutput(output_info=verdict, tripwire_triggered=verdict.is_blocked)

    async def _tool_output(self, data: Any) -> Any:
        text = str(data.output)
        try:
            task = last_asked(getattr(data.context, "turn_input", None) or ())
            screened = await self.guard.screen(text, task, f"tool:{data.context.tool_name}")
        except Blocked as blocked:
            return ToolGuardrailFunctionOutput.raise_exception(output_info=blocked.verdict)
        if screened == text:
            return ToolGuardrailFunctionOutput.allow()
        return ToolGuardrailFunctionOutput.reject_content(screened)


def _instructions(agent: Any) -> str | None:
    text = getattr(agent, "instructions", None)
    # Instructions may also be a function, which needs the running context.
    return text if isinstance(text, str) else None
