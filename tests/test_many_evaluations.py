"""Two hundred evaluations at once against a slow endpoint on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from promptguard import PromptGuard, PromptGuardConfig
from promptguard.config import EndpointConfig

REPLY = json.dumps({"truth": 0.9, "indeterminacy": 0.1, "falsehood": 0.05, "reasoning": "fine"})


class SlowEndpoint:
    """Answers chat completions only once `gate` is open, and counts what is under way."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.busy = asyncio.Event()
        self.under_way = self.most = self.asked = 0
        self.open_connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                await reader.readexactly(length)
                await self._answer(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open_connections -= 1
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.busy.set()
        await self.gate.wait()
        self.under_way -= 1
        body = json.dumps(
            {
                "choices": [{"message": {"content": REPLY}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 5},
            }
        ).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        await writer.drain()


@asynccontextmanager
async def slow_guard() -> AsyncIterator[tuple[SlowEndpoint, PromptGuard]]:
    endpoint = SlowEndpoint()
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = PromptGuardConfig(
        models=["llamacpp/stub"],
        evaluation_type="ayni_relational",
        max_concurrency=16,
        endpoint=EndpointConfig(base_urls={"llamacpp": f"http://127.0.0.1:{port}/v1"}),
    )
    guard = PromptGuard(config)
    try:
        yield endpoint, guard
    finally:
        endpoint.gate.set()
        await guard.close()
        server.close()


async def test_two_hundred_evaluations_are_bounded_and_all_answered() -> None:
    """No more calls are under way than configured, and every prompt gets its verdict in order."""
    async with slow_guard() as (endpoint, guard):
        work = asyncio.create_task(guard.evaluate_batch([f"question {n}" for n in range(200)]))
        await endpoint.busy.wait()
        endpoint.gate.set()
        results = await work
        assert len(results) == 200
        assert not [result for result in results if isinstance(result, Exception)]
        assert endpoint.most <= 16


async def test_cancelling_leaves_no_call_behind() -> None:
    """A cancelled batch stops asking."""
    async with slow_guard() as (endpoint, guard):
        work = asyncio.create_task(guard.evaluate_batch([f"question {n}" for n in range(200)]))
        await endpoint.busy.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        asked = endpoint.asked
        endpoint.gate.set()
        for _ in range(50):
            await asyncio.sleep(0)
        assert endpoint.asked == asked <= 16
