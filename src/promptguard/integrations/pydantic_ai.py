"""Pydantic AI: a capability that stops attacks and strips poisoned tool results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from promptguard.config import ControllerConfig
from promptguard.conversation import Message, Role
from promptguard.guard import AsyncGuard
from promptguard.integrations.extras import last_asked, missing

try:
    from pydantic_ai import InstructionPart, ModelResponse, SkipModelRequest, TextPart
    from pydantic_ai.capabilities import AbstractCapability
except ImportError as error:
    raise missing("pydantic-ai", error) from None

_ROLES = {
    "system-prompt": Role.SYSTEM,
    "user-prompt": Role.USER,
    "tool-return": Role.TOOL,
    # Written by the framework from what a tool or a check said: no words of the user.
    "retry-prompt": Role.TOOL,
    "text": Role.ASSISTANT,
    "tool-call": Role.ASSISTANT,
}


class GuardCapability(AbstractCapability[Any]):
    """Give it to `Agent(capabilities=[GuardCapability()])`.

    A blocked turn is answered with the refusal, and the model is not called; a steered one adds
    a notice to the instructions. A poisoned tool result is replaced before the model sees it. The
    session is the agent's conversation id.
    """

    def __init__(
        self, config: ControllerConfig | None = None, *, guard: AsyncGuard | None = None
    ) -> None:
        self.guard = guard or AsyncGuard(config)

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Judge what is new; skip the model where it is blocked."""
        messages = tuple(_messages(request_context.messages))
        result = await self.guard.judge(messages, ctx.conversation_id)
        if result.is_blocked:
            raise SkipModelRequest(ModelResponse(parts=[TextPart(self.guard.config.refusal)]))
        return _noticed(request_context, result.notice) if result.notice else request_context

    async def after_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, result: Any
    ) -> Any:
        """Return the tool's result, or the note that replaces it."""
        del tool_def, args
        text = result if isinstance(result, str) else json.dumps(result, default=str)
        task = last_asked(_messages(ctx.messages))
        screened = await self.guard.screen(text, task, f"tool:{call.tool_name}")
        # The result itself where nothing was found, so that a structured one keeps its type.
        return result if screened == text else screened


def _noticed(request_context: Any, notice: str) -> Any:
    asked = request_context.model_request_parameters
    parts = [*(asked.instruction_parts or ()), InstructionPart(notice, dynamic=True)]
    return replace(
        request_context, model_request_parameters=replace(asked, instruction_parts=parts)
    )


def _messages(history: Iterable[Any]) -> Iterator[Message]:
    """Yield the parts of Pydantic AI's requests and responses as messages."""
    for entry in history:
        if getattr(entry, "instructions", None):
            yield Message(role=Role.SYSTEM, content=entry.instructions)
        for part in entry.parts:
            role = _ROLES.get(part.part_kind)
            if role is not None:
                yield Message(role=role, content=_text(part))


def _text(part: Any) -> str:
    if part.part_kind == "tool-call":
        return ""
    if part.part_kind == "tool-return":
        return str(part.model_response_str())
    content = part.content
    if isinstance(content, str):
        return content
    return "\n".join(item for item in content if isinstance(item, str))
