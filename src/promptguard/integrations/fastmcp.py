"""FastMCP: a middleware that strips poisoned tool results and tool descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from promptguard.config import ControllerConfig
from promptguard.guard import AsyncGuard
from promptguard.integrations.extras import missing

try:
    from fastmcp.server.middleware import Middleware
    from fastmcp.tools.base import ToolResult
except ImportError as error:
    raise missing("fastmcp", error) from None


class GuardMiddleware(Middleware):
    """Give it to `server.add_middleware(GuardMiddleware())`.

    Works in a server and in a proxy before one. A client of MCP has no conversation to show, so
    each content is judged for itself; there are no sessions.
    """

    def __init__(
        self, config: ControllerConfig | None = None, *, guard: AsyncGuard | None = None
    ) -> None:
        super().__init__()
        self.guard = guard or AsyncGuard(config)

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        """Run the tool, and replace the texts of its result that carry orders."""
        result = await call_next(context)
        origin = f"tool:{context.message.name}"
        blocks = [await self._block(block, origin) for block in result.content]
        structured = await self._value(result.structured_content, origin)
        # What is harmless passes as the same object, with whatever else the server put into it.
        if blocks == result.content and structured == result.structured_content:
            return result
        return ToolResult(
            content=blocks,
            structured_content=structured,
            meta=result.meta,
            is_error=result.is_error,
        )

    async def on_list_tools(self, context: Any, call_next: Any) -> Sequence[Any]:
        """Return the tools, with a note for each description that carries orders."""
        return [await self._described(tool) for tool in await call_next(context)]

    async def _described(self, tool: Any) -> Any:
        text = tool.description or ""
        origin = f"tools[{tool.name}].description"
        screened = await self.guard.screen(text, origin=origin) if text else text
        return tool if screened == text else tool.model_copy(update={"description": screened})

    async def _block(self, block: Any, origin: str) -> Any:
        resource = getattr(block, "resource", None)
        if resource is not None:
            screened = await self._block(resource, origin)
            return (
                block if screened is resource else block.model_copy(update={"resource": screened})
            )
        text = getattr(block, "text", None)
        # Images and other blocks hold no text to judge.
        if not isinstance(text, str) or not text:
            return block
        screened = await self.guard.screen(text, origin=origin)
        return block if screened == text else block.model_copy(update={"text": screened})

    async def _value(self, value: Any, origin: str) -> Any:
        """Return structured content with every text in it screened; its shape stays."""
        if isinstance(value, str):
            return await self.guard.screen(value, origin=origin) if value else value
        if isinstance(value, dict):
            return {key: await self._value(item, origin) for key, item in value.items()}
        if isinstance(value, list):
            return [await self._value(item, origin) for item in value]
        return value
