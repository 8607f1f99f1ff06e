"""Real servers on loopback that behave badly, and scripted transports that need no socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import httpx

from promptguard.config import EndpointConfig
from promptguard.providers import EndpointSeams
from promptguard.testing import ManualClock

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """Serve raw connections with `handler`, after it has read the request's head and body."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await reader.readexactly(int(line.split(b":")[1]))
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}/v1"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def chunk(data: bytes) -> bytes:
    """Return one piece of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(payload: object) -> bytes:
    """Return one server-sent event."""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return f"data: {text}\n\n".encode()


def said(text: str, **more: object) -> dict[str, object]:
    """Return one piece of a streamed answer."""
    return {"choices": [{"delta": {"content": text}, **more}]}


def answer(text: str = "hi", **more: object) -> dict[str, object]:
    """Return a whole answer."""
    return {
        "model": "m-1",
        "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        **more,
    }


class Script:
    """A transport that gives prepared answers in order and notes what was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self._answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        given = self._answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    @property
    def bodies(self) -> list[dict[str, object]]:
        """The JSON bodies that were sent."""
        return [json.loads(request.content) for request in self.requests]


def seams_of(
    script: Script, clock: ManualClock | None = None, env: Mapping[str, str] | None = None
) -> EndpointSeams:
    """Return seams without network, without waiting and without chance."""
    clock = clock or ManualClock()
    return EndpointSeams(
        env=env or {},
        transport=httpx.MockTransport(script),
        clock=clock,
        sleep=clock.sleep,
        random=lambda: 0.5,
    )


def local(base_url: str = "http://test/v1", **values: object) -> EndpointConfig:
    """Return a configuration whose provider `box` is at `base_url`."""
    return EndpointConfig(base_urls={"box": base_url}, **values)
