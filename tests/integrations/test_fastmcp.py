"""The middleware in a real FastMCP server, asked by a real client in memory."""

from __future__ import annotations

import pytest

pytest.importorskip("fastmcp", reason="pinned in requirements/integrations.txt")

from fastmcp import Client, FastMCP
from fastmcp.tools.base import ToolResult
from mcp.types import EmbeddedResource
from spoken import CLEAN, POISONED, POISONED_TOOL

from promptguard.integrations.fastmcp import GuardMiddleware
from promptguard.risk.ledger import STRIPPED


@pytest.fixture
def server() -> FastMCP:
    made = FastMCP("weather")
    made.add_middleware(GuardMiddleware())

    @made.tool
    def clean() -> str:
        """Return the weather."""
        return CLEAN

    @made.tool
    def poisoned() -> str:
        """Return the weather, from a page that somebody else wrote."""
        return POISONED

    @made.tool
    def nested() -> dict[str, list[str]]:
        """Return several texts."""
        return {"reports": [CLEAN, POISONED]}

    return made


async def test_a_harmless_result_passes_as_it_is(server: FastMCP) -> None:
    """Text and structured content alike."""
    async with Client(server) as client:
        result = await client.call_tool("clean")
    assert result.content[0].text == CLEAN
    assert result.data == CLEAN


async def test_a_poisoned_result_is_replaced(server: FastMCP) -> None:
    """The orders reach the client in no form, and the call is no error."""
    async with Client(server) as client:
        result = await client.call_tool("poisoned")
    assert result.content[0].text == STRIPPED
    assert result.data == STRIPPED
    assert not result.is_error


async def test_only_the_poisoned_part_of_structured_content_is_replaced(server: FastMCP) -> None:
    """Its shape stays, and so does what is harmless."""
    async with Client(server) as client:
        result = await client.call_tool("nested")
    assert result.structured_content == {"reports": [CLEAN, STRIPPED]}
    assert "evil" not in result.content[0].text


async def test_a_poisoned_resource_in_a_result_is_replaced(server: FastMCP) -> None:
    """A text that comes as an embedded file is a text all the same."""

    @server.tool
    def attached() -> ToolResult:
        """Return two files."""
        files = [{"uri": "file:///page.txt", "text": text} for text in (CLEAN, POISONED)]
        blocks = [{"type": "resource", "resource": file} for file in files]
        return ToolResult(content=[EmbeddedResource.model_validate(block) for block in blocks])

    async with Client(server) as client:
        result = await client.call_tool("attached")
    assert [block.resource.text for block in result.content] == [CLEAN, STRIPPED]


async def test_a_poisoned_description_is_replaced(server: FastMCP) -> None:
    """The tool can still be called; others keep their words."""
    server.tool(lambda: CLEAN, name="trap", description=POISONED_TOOL)
    async with Client(server) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        result = await client.call_tool("trap")
    assert tools["trap"].description == STRIPPED
    assert tools["clean"].description == "Return the weather."
    assert result.content[0].text == CLEAN
