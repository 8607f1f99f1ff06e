"""A stand-in for a model's endpoint: it answers by script and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


@dataclass
class Script:
    """What the next answers are. `hang` makes a stream wait for ever after its first piece."""

    replies: list[Any] = field(default_factory=list)
    status: int = 200
    hang: bool = False
    break_after: int | None = None
    pieces: int = 12
    content_type: str = "text/event-stream"
    raw_stream: bytes | None = None


class StubUpstream:
    """OpenAI-compatible and obedient. `app` is the ASGI application."""

    def __init__(self) -> None:
        self.script = Script()
        self.requests: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.cancelled = asyncio.Event()
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/v1/models/{model:path}", self._model),
            ]
        )

    def answers(self, *replies: Any, **script: Any) -> None:
        """Set what comes next: texts, or whole messages as dictionaries."""
        self.script = Script(replies=list(replies), **script)

    @property
    def calls(self) -> int:
        return len(self.requests)

    async def _chat(self, request: Request) -> Response:
        raw = await request.body()
        body = json.loads(raw)
        self.raw.append(raw)
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        script = self.script
        if script.status != 200:
            error = {"message": "no", "type": "stub", "param": None, "code": "stub"}
            return JSONResponse({"error": error}, status_code=script.status)
        reply = script.replies.pop(0) if script.replies else "Certainly."
        message = reply if isinstance(reply, dict) else {"role": "assistant", "content": reply}
        if body.get("stream"):
            return StreamingResponse(self._stream(message, script), media_type=script.content_type)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        completion = {
            "id": "chatcmpl-stub",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
            "system_fingerprint": "fp_stub",
            "x_unknown": {"kept": True},
        }
        return Response(
            json.dumps(completion),
            media_type="application/json",
            headers={"x-request-id": "stub-1", "set-cookie": "secret=1"},
        )

    async def _stream(self, message: dict[str, Any], script: Script) -> AsyncIterator[bytes]:
        try:
            if script.raw_stream is not None:
                yield script.raw_stream
                return
            yield _chunk({"role": "assistant", "content": ""})
            for number, piece in enumerate(_pieces(message, script.pieces)):
                if script.break_after == number:
                    raise RuntimeError("broken on purpose")
                yield _chunk(piece)
                if script.hang:
                    await asyncio.Event().wait()
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            yield _chunk({}, reason)
            yield b"data: [DONE]\n\n"
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise

    async def _models(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        model = {"id": "stub-model", "object": "model", "created": 1, "owned_by": "stub"}
        return JSONResponse({"object": "list", "data": [model]})

    async def _model(self, request: Request) -> Response:
        return JSONResponse({"id": request.path_params["model"], "object": "model"})


def _pieces(message: dict[str, Any], size: int) -> list[dict[str, Any]]:
    if message.get("tool_calls"):
        calls = [{"index": at, **call} for at, call in enumerate(message["tool_calls"])]
        return [{"tool_calls": calls}]
    text = message["content"]
    return [{"content": text[at : at + size]} for at in range(0, len(text), size)]


def _chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
    body = {
        "id": "chatcmpl-stub",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "stub-model",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        "x_unknown": "kept",
    }
    return f"data: {json.dumps(body)}\n\n".encode()
