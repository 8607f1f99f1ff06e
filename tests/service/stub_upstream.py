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
    raw_response: bytes | None = None


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
                Route("/v1/responses", self._respond, methods=["POST"]),
                Route("/v1/messages", self._message, methods=["POST"]),
                Route("/v1/completions", self._complete, methods=["POST"]),
                Route("/v1/embeddings", self._embed, methods=["POST"]),
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
            "model": body.get("model", "stub-model"),
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

    async def _asked(self, request: Request) -> tuple[dict[str, Any], str]:
        """Remember a request; return its body and the text to answer."""
        raw = await request.body()
        body = json.loads(raw)
        self.raw.append(raw)
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        replies = self.script.replies
        return body, replies.pop(0) if replies else "Certainly."

    async def _respond(self, request: Request) -> Response:
        body, reply = await self._asked(request)
        response = a_response(reply, number=self.calls)
        if body.get("stream"):
            events = self.script.raw_response or named(response_events(response))
            return Response(events, media_type="text/event-stream")
        return JSONResponse(response)

    async def _message(self, request: Request) -> Response:
        body, reply = await self._asked(request)
        if self.script.status != 200:
            error = {"type": "authentication_error", "message": "no"}
            return JSONResponse({"type": "error", "error": error}, status_code=self.script.status)
        message = a_message(reply)
        if body.get("stream"):
            return Response(named(message_events(message)), media_type="text/event-stream")
        return JSONResponse(message)

    async def _complete(self, request: Request) -> Response:
        body, reply = await self._asked(request)
        choice = {"index": 0, "text": reply, "logprobs": None, "finish_reason": "stop"}
        completion = {
            "id": "cmpl-stub",
            "object": "text_completion",
            "created": 1,
            "model": body.get("model", "stub-model"),
            "choices": [choice],
        }
        if not body.get("stream"):
            return JSONResponse(completion)
        data = f"data: {json.dumps(completion)}\n\ndata: [DONE]\n\n"
        return Response(data, media_type="text/event-stream")

    async def _embed(self, request: Request) -> Response:
        body, _ = await self._asked(request)
        vector = {"object": "embedding", "index": 0, "embedding": [0.5, 0.5]}
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        answer = {
            "object": "list",
            "model": body.get("model", "stub-model"),
            "data": [vector],
            "usage": usage,
        }
        return JSONResponse(answer)

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


def a_response(reply: Any, *, number: int = 1) -> dict[str, Any]:
    """A Responses answer: of one text, or of the items given."""
    part = {"type": "output_text", "text": reply, "annotations": []}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "stub-model",
        "output": reply if isinstance(reply, list) else [message],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "x_unknown": "kept",
    }


def response_events(response: dict[str, Any], size: int = 12) -> list[dict[str, Any]]:
    """The events that stream a Responses answer."""
    begun = {**response, "status": "in_progress", "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for at, item in enumerate(response["output"]):
        place = {"output_index": at, "item_id": item["id"]}
        events.append(
            {"type": "response.output_item.added", **place, "item": {**item, "content": []}}
        )
        if item["type"] == "function_call":
            kind = "response.function_call_arguments"
            arguments = item["arguments"]
            events.append({"type": f"{kind}.delta", **place, "delta": arguments})
            events.append({"type": f"{kind}.done", **place, "arguments": arguments})
        for number, part in enumerate(item.get("content", ())):
            inside = {**place, "content_index": number}
            empty, text = {**part, "text": ""}, part["text"]
            events.append({"type": "response.content_part.added", **inside, "part": empty})
            for start in range(0, len(text), size):
                delta = {"delta": text[start : start + size], "logprobs": []}
                events.append({"type": "response.output_text.delta", **inside, **delta})
            done = {"text": text, "logprobs": []}
            events.append({"type": "response.output_text.done", **inside, **done})
            events.append({"type": "response.content_part.done", **inside, "part": part})
        events.append({"type": "response.output_item.done", **place, "item": item})
    events.append({"type": "response.completed", "response": response})
    return [{**event, "sequence_number": at} for at, event in enumerate(events)]


def a_message(reply: Any) -> dict[str, Any]:
    """An Anthropic message: of one text, or of the blocks given."""
    blocks = reply if isinstance(reply, list) else [{"type": "text", "text": reply}]
    return {
        "id": "msg_stub",
        "type": "message",
        "role": "assistant",
        "model": "stub-model",
        "content": blocks,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 5},
    }


def message_events(message: dict[str, Any], size: int = 12) -> list[dict[str, Any]]:
    """The events that stream an Anthropic message."""
    begun = {**message, "content": [], "stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for at, block in enumerate(message["content"]):
        place = {"index": at}
        is_text = block["type"] == "text"
        empty = {**block, "text": ""} if is_text else {**block, "input": {}}
        events.append({"type": "content_block_start", **place, "content_block": empty})
        whole = block["text"] if is_text else json.dumps(block["input"])
        for start in range(0, len(whole), size):
            piece = whole[start : start + size]
            delta = (
                {"type": "text_delta", "text": piece}
                if is_text
                else {"type": "input_json_delta", "partial_json": piece}
            )
            events.append({"type": "content_block_delta", **place, "delta": delta})
        events.append({"type": "content_block_stop", **place})
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}})
    return [*events, {"type": "message_stop"}]


def named(events: list[dict[str, Any]]) -> bytes:
    """Events that bear their type as their name."""
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()
