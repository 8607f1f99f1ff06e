"""The HTTP server around the application: limits on headers and idle time, signals."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from promptguard.service.app import Service

MAX_HEADER_BYTES = 64 * 1024
_KEEP_ALIVE_S = 30
# Room for probes while every connection is busy.
RESERVED_CONNECTIONS = 32


class IdleTimeoutProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, which also closes connections on which no request begins.

    uvicorn times idle connections only between requests, so one that sends its headers byte by
    byte could stay forever.
    """

    idle_timeout_s = 30.0
    max_connections = 1000

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the idle timer; where too many are open, the longest idle one is closed."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        if len(self.connections) > self.max_connections:
            self._make_room()
        self._was_idle = False
        self._last_cycle: object = None
        self._schedule_check()

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def on_response_complete(self) -> None:
        """Note since when the connection is idle."""
        super().on_response_complete()
        self._idle_since = self.loop.time()

    def _make_room(self) -> None:
        # A new connection may be a probe's, so it is an idle one that has to go.
        ours = (each for each in self.connections if isinstance(each, IdleTimeoutProtocol))
        idle = [each for each in ours if each is not self and each.is_idle]
        if idle:
            min(idle, key=lambda each: each._idle_since).transport.close()
        elif len(self.connections) > self.max_connections + RESERVED_CONNECTIONS:
            self.transport.close()

    def _schedule_check(self) -> None:
        self.loop.call_later(self.idle_timeout_s / 2, self._check_idle)

    def _check_idle(self) -> None:
        """Close the connection where two checks in a row found no request under way."""
        # A websocket has taken the connection over; uvicorn watches those itself.
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        # Another cycle than at the last check means that a request came in between.
        is_same = self.cycle is self._last_cycle
        is_idle = is_same and self.is_idle
        self._last_cycle = self.cycle
        if is_idle and self._was_idle:
            self.transport.close()
            return
        self._was_idle = is_idle
        self._schedule_check()


class GuardServer(uvicorn.Server):
    """Runs a service; `on_ready` is called with the port once connections are accepted."""

    def __init__(
        self, config: uvicorn.Config, service: Service, on_ready: Callable[[int], None]
    ) -> None:
        super().__init__(config)
        self._service = service
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, handle SIGHUP as a reload, and report the port."""
        await super().startup(sockets=sockets)
        # The application failed to start, so there is no socket to tell of.
        if self.should_exit:
            return
        reload_signal = getattr(signal, "SIGHUP", None)
        if reload_signal is not None:
            loop = asyncio.get_running_loop()
            # Only the main thread gets signals; a server in another one is not reloaded by them.
            with suppress(RuntimeError, ValueError):
                loop.add_signal_handler(reload_signal, self._reload)
        self._on_ready(self.servers[0].sockets[0].getsockname()[1])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Report not ready at once, then finish what is under way."""
        # Before uvicorn stops: a load balancer must see it while connections are still accepted.
        self._service.lifecycle.stop()
        super().handle_exit(sig, frame)

    def _reload(self) -> None:
        self._service.background.spawn(self._service.reloader.reload())


def open_server(service: Service, on_ready: Callable[[int], None]) -> GuardServer:
    """Return the server for a service, with the limits of its settings."""
    settings = service.live.current.service
    # uvicorn takes a protocol class and no arguments for it.
    limits = {
        "idle_timeout_s": max(0.1, settings.client_timeout_s),
        "max_connections": settings.max_connections,
    }
    protocol = type("Protocol", (IdleTimeoutProtocol,), limits)
    _raise_file_limit()
    config = uvicorn.Config(
        service.app,
        host=settings.host,
        port=settings.port,
        http=protocol,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=round(settings.shutdown_s),
        log_config=None,
        access_log=False,
        server_header=False,
        # A forwarded address is what the sender says; who is local is decided by the peer alone.
        proxy_headers=False,
        lifespan="on",
    )
    return GuardServer(config, service, on_ready)


def _raise_file_limit() -> None:
    """Allow as many open files as the system lets us: each connection is one."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
