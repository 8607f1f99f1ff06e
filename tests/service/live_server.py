"""Real servers on loopback, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from guarded_service import make_parts
from stub_upstream import StubUpstream

from promptguard.service.app import Service
from promptguard.service.server import GuardServer, open_server
from promptguard.testing import ManualClock


class Live:
    """A running guard in front of a running stub."""

    def __init__(self, service: Service, upstream: StubUpstream, server: GuardServer, port: int):
        self.service = service
        self.upstream = upstream
        self.server = server
        self.port = port
        self.url = f"http://127.0.0.1:{port}"


class _Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[int], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets=sockets)
        self._on_ready(self.servers[0].sockets[0].getsockname()[1])


@contextmanager
def running(make: Callable[[Callable[[int], None]], uvicorn.Server]) -> Iterator[Any]:
    """Run a server until the block ends; gives the server and its port."""
    ready = threading.Event()
    ports: list[int] = []

    def on_ready(port: int) -> None:
        ports.append(port)
        ready.set()

    server = make(on_ready)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert ready.wait(20), "the server did not start"
    try:
        yield server, ports[0]
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"


@contextmanager
def live_upstream(upstream: StubUpstream) -> Iterator[str]:
    """Run a stub; gives its base URL."""

    def make(on_ready: Callable[[int], None]) -> uvicorn.Server:
        config = uvicorn.Config(upstream.app, port=0, log_config=None, lifespan="off")
        return _Announcing(config, on_ready)

    with running(make) as (_, port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def live_guard(upstream: StubUpstream | None = None, **options: Any) -> Iterator[Live]:
    """Run a guard in front of a stub."""
    upstream = upstream or StubUpstream()
    with live_upstream(upstream) as base:
        options["service"] = {"port": 0, **options.get("service", {})}
        clock = options.pop("clock", None) or ManualClock()
        parts = make_parts(upstream, clock=clock, transport=_To(base), **options)
        service = Service(parts)
        with running(lambda on_ready: open_server(service, on_ready)) as (server, port):
            yield Live(service, upstream, server, port)


class _To(httpx.AsyncBaseTransport):
    """Sends everything to one real server; each event loop gets its own connections."""

    def __init__(self, base: str) -> None:
        self._base = httpx.URL(base)
        self._inner: httpx.AsyncHTTPTransport | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._inner = self._inner or httpx.AsyncHTTPTransport()
        request.url = request.url.copy_with(host=self._base.host, port=self._base.port)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()
