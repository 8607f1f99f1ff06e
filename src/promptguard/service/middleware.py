"""The middleware before every route: authentication, limits on the body, last-resort errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from promptguard.config import ServiceConfig
from promptguard.service.auth import PRINCIPAL, Authenticator, local_only_error
from promptguard.service.errors import ApiError, error_response
from promptguard.service.telemetry import Telemetry, log

# Probes come without a key and from other machines.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})
_GUARDED = ("/v1/", "/beta/", "/metrics")


class RequestMiddleware:
    """ASGI middleware around the whole application.

    Routes under /v1, /beta and /metrics get an authenticated principal; the dashboard
    authenticates by itself. An exception that no handler caught becomes a 503 without details.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        telemetry: Telemetry,
        config: Callable[[], ServiceConfig],
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._telemetry = telemetry
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an admitted request on; answer any other with an error."""
        if scope["type"] == "websocket":
            if self._local_only(scope) is not None:
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _RecordedSend(send)
        config = self._config()
        body = _BoundedBody(receive=receive, config=config)
        with self._telemetry.request():
            try:
                self._admit(scope, config)
                await self._app(scope, body, answer)
            except HTTPException as error:
                await self._refuse(error, answer, scope, receive)
            except Exception as error:
                log(logging.ERROR, "request failed", error=error, route=_route(scope))
                await self._refuse(_failed(), answer, scope, receive)
        self._telemetry.requested(_route(scope), answer.status)

    def _admit(self, scope: Scope, config: ServiceConfig) -> None:
        if scope["path"] in OPEN_PATHS:
            return
        if (error := self._local_only(scope)) is not None:
            raise error
        headers = Headers(scope=scope)
        if scope["path"].startswith(_GUARDED):
            scope[PRINCIPAL] = self._authenticator.admit(headers)
        # A declared size is refused before the body is read; `_BoundedBody` counts the rest.
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > config.max_body_bytes:
            raise _too_large(config)

    def _local_only(self, scope: Scope) -> ApiError | None:
        """Return why a caller without a key is refused; None where it may be the local user."""
        if self._authenticator.has_keys:
            return None
        client = scope.get("client")
        return local_only_error(Headers(scope=scope), client[0] if client else None)

    async def _refuse(
        self, error: HTTPException, answer: _RecordedSend, scope: Scope, receive: Receive
    ) -> None:
        if not answer.has_begun:
            await error_response(error)(scope, receive, answer)


@dataclass(slots=True)
class _RecordedSend:
    """A `send` that records the status of the response."""

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
    """A `receive` that raises for bodies that are too large or too slow."""

    receive: Receive
    config: ServiceConfig
    _received: int = field(default=0, init=False)
    _is_whole: bool = field(default=False, init=False)
    _deadline_s: float = field(default=0.0, init=False)

    async def __call__(self) -> Message:
        if self._is_whole:
            return await self.receive()
        # One deadline for the whole body, so that a client cannot keep it open byte by byte.
        loop = asyncio.get_running_loop()
        self._deadline_s = self._deadline_s or loop.time() + self.config.client_timeout_s
        try:
            async with asyncio.timeout_at(self._deadline_s):
                message = await self.receive()
        except TimeoutError:
            raise ApiError(408, "The body did not arrive in time.", code="body_too_slow") from None
        self._received += len(message.get("body", b""))
        if self._received > self.config.max_body_bytes:
            raise _too_large(self.config)
        self._is_whole = not message.get("more_body", False)
        return message


def _too_large(config: ServiceConfig) -> ApiError:
    return ApiError(
        413,
        f"The body is larger than the {config.max_body_bytes} bytes accepted.",
        code="body_too_large",
        param="body",
    )


def _failed() -> ApiError:
    return ApiError(503, "The service failed on this request.", code="internal_error")


def _route(scope: Scope) -> str:
    """Return the route's template, which unlike the path holds no ids and is bounded in number."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "other"
