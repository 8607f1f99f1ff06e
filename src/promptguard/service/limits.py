"""The gate before every route: who is let in, how much may come, and how long it may take."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from promptguard.service.auth import Authenticator, local_fault
from promptguard.service.faults import Fault, error_response
from promptguard.service.logs import log
from promptguard.service.request_info import PRINCIPAL
from promptguard.service.telemetry import Telemetry

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})
_GUARDED = ("/v1/", "/beta/", "/metrics")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """What the gate allows at the moment."""

    max_body_bytes: int
    client_timeout_s: float


class Gate:
    """ASGI middleware around the whole application.

    The routes under /v1, /beta and /metrics need a principal; other pages see to it themselves.
    Nothing that goes wrong inside leaves as a bare 500.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        telemetry: Telemetry,
        limits: Callable[[], GateLimits],
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._telemetry = telemetry
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or say why not."""
        if scope["type"] == "websocket":
            if self._stranger(scope) is not None:
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Watched(send)
        limits = self._limits()
        body = _BoundedBody(receive=receive, limits=limits)
        with self._telemetry.request():
            try:
                self._admit(scope, limits)
                await self._app(scope, body, answer)
            except HTTPException as fault:
                await self._refuse(fault, answer, scope, receive)
            except Exception as error:
                log(logging.ERROR, "request failed", error=error, route=_route(scope))
                await self._refuse(_failed(), answer, scope, receive)
        self._telemetry.requested(_route(scope), answer.status)

    def _admit(self, scope: Scope, limits: GateLimits) -> None:
        if scope["path"] in OPEN_PATHS:
            return
        if (stranger := self._stranger(scope)) is not None:
            raise stranger
        headers = Headers(scope=scope)
        if scope["path"].startswith(_GUARDED):
            scope[PRINCIPAL] = self._authenticator.admit(headers)
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > limits.max_body_bytes:
            raise _too_large(limits)

    def _stranger(self, scope: Scope) -> Fault | None:
        """Return why this caller is not the local user, where nobody needs a key."""
        if self._authenticator.has_keys:
            return None
        client = scope.get("client")
        return local_fault(Headers(scope=scope), client[0] if client else None)

    async def _refuse(
        self, fault: HTTPException, answer: _Watched, scope: Scope, receive: Receive
    ) -> None:
        if not answer.has_begun:
            await error_response(fault)(scope, receive, answer)


@dataclass(slots=True)
class _Watched:
    """A `send` that remembers what was answered."""

    send: Send
    status: int = 0

    @property
    def has_begun(self) -> bool:
        return self.status > 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self.send(message)


@dataclass(slots=True, kw_only=True)
class _BoundedBody:
    """A `receive` that gives up on bodies that are too large or too slow."""

    receive: Receive
    limits: GateLimits
    _received: int = field(default=0, init=False)
    _is_whole: bool = field(default=False, init=False)
    _deadline_s: float = field(default=0.0, init=False)

    async def __call__(self) -> Message:
        if self._is_whole:
            return await self.receive()
        loop = asyncio.get_running_loop()
        self._deadline_s = self._deadline_s or loop.time() + self.limits.client_timeout_s
        try:
            async with asyncio.timeout_at(self._deadline_s):
                message = await self.receive()
        except TimeoutError:
            raise Fault(408, "The body did not arrive in time.", code="body_too_slow") from None
        self._received += len(message.get("body", b""))
        if self._received > self.limits.max_body_bytes:
            raise _too_large(self.limits)
        self._is_whole = not message.get("more_body", False)
        return message


def _too_large(limits: GateLimits) -> Fault:
    return Fault(
        413,
        f"The body is larger than the {limits.max_body_bytes} bytes accepted.",
        code="body_too_large",
        param="body",
    )


def _failed() -> Fault:
    return Fault(503, "The service failed on this request.", code="internal_error")


def _route(scope: Scope) -> str:
    """Return the route's template; paths themselves hold ids and are the client's to choose."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "other"
