"""The Python of the integrations' pages runs where what it needs is installed."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "integrations"
_BLOCK = re.compile(r"<!-- needs (\w+) -->\n```python\n(.*?)```", re.DOTALL)
EXAMPLES = [
    pytest.param(needed, code, id=f"{page.stem}-{needed}")
    for page in sorted(DOCS.glob("*.md"))
    for needed, code in _BLOCK.findall(page.read_text("utf-8"))
]


def test_every_framework_has_a_page() -> None:
    """So that none is left out below."""
    needed = {param.values[0] for param in EXAMPLES}
    assert needed == {
        *("agents", "fastmcp", "inspect_ai", "langchain"),
        *("litellm", "llama_index", "pydantic_ai", "pyrit"),
    }


@pytest.mark.parametrize(("needed", "code"), EXAMPLES)
def test_the_example_runs(needed: str, code: str, capsys) -> None:
    """What it prints, if anything, is the guard's work."""
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed here; `make integrations` has it")
    names: dict[str, Any] = {"__name__": "pasted"}
    waiting = eval(compile(code, needed, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.iscoroutine(waiting):
        asyncio.run(waiting)
    said = capsys.readouterr().out
    assert "print(" not in code or any(word in said for word in ("sorry", "Removed", "1"))
