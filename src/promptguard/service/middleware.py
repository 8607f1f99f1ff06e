"""The middleware before every route: authentication, limits on the body, last-resort errors."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import KW_ONLY, dataclass, field

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from promptguard.config import ServiceConfig
from promptguard.service.auth import (
    PRINCIPAL,
    Authenticator,
    CallerSlots,
    Principal,
    local_only_error,
)
from promptguard.service.calls import Calls, call_of
from promptguard.service.errors import ApiError, error_response
from promptguard.service.lanes import LONG_BODY_BYTES, Call, Lane
from promptguard.service.logs import log
from promptguard.service.telemetry import Telemetry, finish_request
from promptguard.service.upstream import disconnected

# Probes come without a key and from other machines.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})
_GUARDED = ("/v1/", "/beta/", "/metrics")
_HEAVY = re.compile(r"/v1/rubric/?|/v1/sessions/.+/(?:replay|explain)/?")
# To parse JSON takes its time for each list and object in it, whatever the number of bytes.
MAX_BRACKETS = 200_000


@dataclass(frozen=True, slots=True)
class RequestMiddleware:
    """ASGI middleware around the whole application.

    Routes under /v1, /beta and /metrics get an authenticated principal; the dashboard
    authenticates by itself. Long and heavy requests go to lanes of their own and end when their
    client leaves. An exception that no handler caught becomes a 503 without details.
    """

    app: ASGIApp
    _: KW_ONLY
    authenticator: Authenticator
    telemetry: Telemetry
    calls: Calls
    _slots: CallerSlots = field(default_factory=CallerSlots, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an admitted request on; answer any other with an error."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        # Browsers ask no permission before a websocket, so its origin is checked here.
        elif scope["type"] == "websocket" and self._local_only(scope) is not None:
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self.app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        config = self.calls.live.current.service
        exchange = _Exchange(receive=receive, send=send, config=config)
        with self.telemetry.request(), self.telemetry.tracing.request(scope) as span:
            try:
                await self._admitted(scope, exchange)
            except HTTPException as error:
                await exchange.refuse(error, scope)
            except Exception as error:
                # Logged by type and place only; what the exception says may quote the request.
                log(logging.ERROR, "request failed", error=error, route=_route(scope))
                failed = "The service failed on this request."
                await exchange.refuse(ApiError(503, failed, code="internal_error"), scope)
            finally:
                finish_request(span, _route(scope), exchange.status)
        self.telemetry.requested(_route(scope), exchange.status)

    async def _admitted(self, scope: Scope, exchange: _Exchange) -> None:
        """Serve a request in its caller's slot and lane; raises an ApiError otherwise."""
        # Before keys, slots and lanes: a full service must still answer its probes.
        if scope["path"] in OPEN_PATHS:
            await self.app(scope, exchange.receive, exchange.answer)
            return
        principal, most = self._admit(scope, exchange.config), exchange.config.max_connections
        lane = Lane.HEAVY if _HEAVY.fullmatch(scope["path"]) else Lane.SHORT
        # With its port: without keys each connection of one machine is a caller of its own.
        exchange.call = call_of(principal, f"peer {scope.get('client')}", lane)
        # Taken before the body is read, so that slow bodies count as requests under way.
        with self._slots.slot(exchange.call.owner, principal.requests_at_once or most, most):
            await self._served(scope, exchange)

    async def _served(self, scope: Scope, exchange: _Exchange) -> None:
        # No body will be received whose end could start the watch.
        if exchange.call.lane is Lane.HEAVY and scope["method"] == "GET":
            exchange.watch()
        try:
            async with self.calls.run(exchange.call):
                await self.app(scope, exchange.body, exchange.answer)
        except (asyncio.CancelledError, ClientDisconnect) as error:
            if isinstance(error, asyncio.CancelledError) and not exchange.has_left:
                raise
            # The status that nginx uses for it; only metrics and traces will see it.
            raise ApiError(499, "The client left.", code="client_left") from None
        finally:
            exchange.stop()

    def _admit(self, scope: Scope, config: ServiceConfig) -> Principal:
        """Return the caller, one without a name where the route asks for no key."""
        if (error := self._local_only(scope)) is not None:
            raise error
        headers, principal = Headers(scope=scope), Principal()
        if scope["path"].startswith(_GUARDED):
            principal = scope[PRINCIPAL] = self.authenticator.admit(headers)
        # A declared size is refused before the body is read; the exchange counts the rest.
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > config.max_body_bytes:
            raise _too_large(config)
        return principal

    def _local_only(self, scope: Scope) -> ApiError | None:
        """Return why a caller without a key is refused; None where it may be the local user."""
        client = scope.get("client")
        if self.authenticator.has_keys:
            return None
        return local_only_error(Headers(scope=scope), client[0] if client else None)


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """One request's body as it comes and its answer as it goes: bounded, recorded, watched.

    A long body moves its request into the lane for long ones. A client that is watched and leaves
    before its answer has begun cancels the task that made this.
    """

    receive: Receive
    send: Send
    config: ServiceConfig
    call: Call = field(default_factory=Call)
    status: int = 0
    has_left: bool = False
    _received: int = 0
    _brackets: int = 0
    _is_whole: bool = False
    _deadline_s: float = 0.0
    _task: asyncio.Task[object] | None = field(default_factory=asyncio.current_task)
    _watcher: asyncio.Task[None] | None = None

    async def answer(self, message: Message) -> None:
        """Send a part of the answer and note its status."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self.send(message)

    async def refuse(self, error: HTTPException, scope: Scope) -> None:
        """Answer with an error, unless a status was sent: it cannot be taken back."""
        if not self.status:
            await error_response(error)(scope, self.receive, self.answer)

    async def body(self) -> Message:
        """Receive a part of the body; raises where it is too large or too slow."""
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
        self._count(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        # Short turns are judged soon, and their wait for the upstream is watched by the route.
        if self._is_whole and self.call.lane is not Lane.SHORT:
            self.watch()
        return message

    def _count(self, piece: bytes) -> None:
        self._received += len(piece)
        # A rough count that needs no parser; brackets inside strings count as well.
        self._brackets += piece.count(b"[") + piece.count(b"{")
        if self._received > self.config.max_body_bytes:
            raise _too_large(self.config)
        if self._brackets > MAX_BRACKETS:
            message = f"The body has more than the {MAX_BRACKETS} lists and objects accepted."
            raise ApiError(413, message, code="too_many_values", param="body")
        if self._received > LONG_BODY_BYTES and self.call.lane is Lane.SHORT:
            self.call.lane = Lane.LONG

    def watch(self) -> None:
        """Begin to watch for the client's leaving; the body must have been received."""
        self._watcher = asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        await disconnected(self.receive)
        if not self.status and self._task is not None:
            self.has_left = True
            self._task.cancel()

    def stop(self) -> None:
        """Watch no longer, and take an own cancellation back."""
        if self._watcher is not None:
            self._watcher.cancel()
        if self.has_left and self._task is not None:
            # Else timeouts and task groups around it would count the task as cancelled.
            self._task.uncancel()


def _too_large(config: ServiceConfig) -> ApiError:
    message = f"The body is larger than the {config.max_body_bytes} bytes accepted."
    return ApiError(413, message, code="body_too_large", param="body")


def _route(scope: Scope) -> str:
    """Return the route's template, which unlike the path holds no ids and is bounded in number."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "other"
