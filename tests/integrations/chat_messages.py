"""Messages as a client of the chat API sends them."""

from __future__ import annotations

from typing import Any


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def called(result: str) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": result},
    ]
