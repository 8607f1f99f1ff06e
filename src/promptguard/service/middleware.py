"""The middleware before every route: authentication, limits on the body, last-resort errors."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from promptguard.computations import checkpoints, offloading
from promptguard.config import ServiceConfig
from promptguard.service.auth import PRINCIPAL, Authenticator, CallerSlots, Principal
from promptguard.service.child import Child
from promptguard.service.errors import ApiError, error_response
from promptguard.service.lanes import LONG_BODY_BYTES, Call, Lane, LaneExecutor, under_way
from promptguard.service.logs import log
from promptguard.service.settings import LiveSettings
from promptguard.service.telemetry import Telemetry, finish_request
from promptguard.service.upstream import disconnected

# Probes come without a key and from other machines.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})
_GUARDED = ("/v1/", "/beta/", "/metrics")
_HEAVY = re.compile(r"/v1/rubric/?|/v1/sessions/.+/(?:replay|explain)/?")
# To parse JSON takes its time for each list and object in it, whatever the number of bytes.
MAX_BRACKETS = 200_000
T = TypeVar("T")


class RequestMiddleware:
    """ASGI middleware around the whole application.

    Routes under /v1, /beta and /metrics get an authenticated principal; the dashboard
    authenticates by itself. Long and heavy requests go to lanes of their own and end when their
    client leaves. An exception that no handler caught becomes a 503 without details.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        telemetry: Telemetry,
        live: LiveSettings,
        lanes: LaneExecutor,
        child: Child | None,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._telemetry = telemetry
        self._live = live
        self._lanes = lanes
        self._child = child
        self._slots = CallerSlots()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an admitted request on; answer any other with an error."""
        if scope["type"] == "websocket":
            # Browsers ask no permission before a websocket, so its origin is checked here.
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
        with self._telemetry.request(), self._telemetry.tracing.request(scope) as span:
            try:
                await self._admitted(scope, receive, answer)
            except HTTPException as error:
                await self._refuse(error, answer, scope, receive)
            except Exception as error:
                # Logged by type and place only; what the exception says may quote the request.
                log(logging.ERROR, "request failed", error=error, route=_route(scope))
                await self._refuse(_failed(), answer, scope, receive)
            finally:
                finish_request(span, _route(scope), answer.status)
        self._telemetry.requested(_route(scope), answer.status)

    async def _admitted(self, scope: Scope, receive: Receive, answer: _RecordedSend) -> None:
        """Serve a request in its caller's slot and lane; raises an ApiError otherwise."""
        config = self._live.current.service
        # Before keys, slots and lanes: a full service must still answer its probes.
        if scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, answer)
            return
        self._admit(scope, config)
        call = _call_of(scope)
        limit = _limit_of(scope, config)
        # Taken before the body is read, so that slow bodies count as requests under way.
        with self._slots.slot(call.owner, limit, config.max_connections):
            await self._served(call, scope, receive, answer, config)

    async def _served(
        self,
        call: Call,
        scope: Scope,
        receive: Receive,
        answer: _RecordedSend,
        config: ServiceConfig,
    ) -> None:
        departure = _Departure(receive=receive, answer=answer)
        body = _BoundedBody(receive=receive, config=config, call=call, departure=departure)
        # No body will be received whose end could start the watch.
        if call.lane is Lane.HEAVY and scope["method"] == "GET":
            departure.watch()
        deadline_s = config.heavy_timeout_s if call.lane is Lane.HEAVY else None
        try:
            with under_way(call), computing(call, self._lanes, self._child):
                async with asyncio.timeout(deadline_s):
                    await self._app(scope, body, answer)
        except TimeoutError:
            raise too_long(config) from None
        except (asyncio.CancelledError, ClientDisconnect) as error:
            if isinstance(error, asyncio.CancelledError) and not departure.has_happened:
                raise
            # The status that nginx uses for it; only metrics and traces will see it.
            raise ApiError(499, "The client left.", code="client_left") from None
        finally:
            departure.stop()

    def _admit(self, scope: Scope, config: ServiceConfig) -> None:
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
        client = scope.get("client")
        return self._authenticator.local_only(Headers(scope=scope), client[0] if client else None)

    async def _refuse(
        self, error: HTTPException, answer: _RecordedSend, scope: Scope, receive: Receive
    ) -> None:
        # A status that was sent cannot be taken back.
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
class _Departure:
    """Cancels the task that made it when the client leaves before its answer has begun."""

    receive: Receive
    answer: _RecordedSend
    has_happened: bool = field(default=False, init=False)
    _task: asyncio.Task[object] | None = field(default_factory=asyncio.current_task, init=False)
    _watcher: asyncio.Task[None] | None = field(default=None, init=False)

    def watch(self) -> None:
        """Begin to watch; the body must have been received."""
        self._watcher = asyncio.ensure_future(self._wait())

    def stop(self) -> None:
        """Watch no longer, and take an own cancellation back."""
        if self._watcher is not None:
            self._watcher.cancel()
        if self.has_happened and self._task is not None:
            # Else timeouts and task groups around it would count the task as cancelled.
            self._task.uncancel()

    async def _wait(self) -> None:
        await disconnected(self.receive)
        if not self.answer.has_begun and self._task is not None:
            self.has_happened = True
            self._task.cancel()


@dataclass(slots=True, kw_only=True)
class _BoundedBody:
    """A `receive` that raises for bodies that are too large or too slow.

    A long body moves its request into the lane for long ones.
    """

    receive: Receive
    config: ServiceConfig
    call: Call
    departure: _Departure
    _received: int = field(default=0, init=False)
    _brackets: int = field(default=0, init=False)
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
        self._count(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        # Short turns are judged soon, and their wait for the upstream is watched by the route.
        if self._is_whole and self.call.lane is not Lane.SHORT:
            self.departure.watch()
        return message

    def _count(self, piece: bytes) -> None:
        self._received += len(piece)
        # A rough count that needs no parser; brackets inside strings count as well.
        self._brackets += piece.count(b"[") + piece.count(b"{")
        if self._received > self.config.max_body_bytes:
            raise _too_large(self.config)
        if self._brackets > MAX_BRACKETS:
            raise ApiError(
                413,
                f"The body has more than the {MAX_BRACKETS} lists and objects accepted.",
                code="too_many_values",
                param="body",
            )
        if self._received > LONG_BODY_BYTES and self.call.lane is Lane.SHORT:
            self.call.lane = Lane.LONG


@contextmanager
def computing(call: Call, lanes: LaneExecutor, child: Child | None) -> Iterator[None]:
    """Say where the computations of a call run, and when they end."""
    elsewhere = nullcontext() if child is None else offloading(partial(in_child, child, call))
    with checkpoints(partial(lanes.check, call)), elsewhere:
        yield


def in_child(child: Child, call: Call, work: Callable[[], T]) -> T:
    """Return the result of `work`, computed in the child unless the request is a short one."""
    # For a short one the way to the child and back takes longer than the work.
    if call.lane is Lane.SHORT:
        return work()
    result: T = child.run(call, work)
    return result


def _call_of(scope: Scope) -> Call:
    """Return the request as the lanes see it; without keys each connection is a caller."""
    principal = scope.get(PRINCIPAL)
    lane = Lane.HEAVY if _HEAVY.fullmatch(scope["path"]) else Lane.SHORT
    # With its port: each connection of one machine is a caller of its own.
    peer = f"peer {scope.get('client')}"
    if not isinstance(principal, Principal):
        return Call(owner=peer, lane=lane)
    return Call(owner=owner_of(principal, peer), tenant=principal.tenant, lane=lane)


def owner_of(principal: Principal, peer: str) -> str:
    """Return whose calls wait together: those of a key or, without one, of `peer`."""
    return f"key {principal.name}" if principal.name else peer


def _limit_of(scope: Scope, config: ServiceConfig) -> int:
    principal = scope.get(PRINCIPAL)
    limit = principal.requests_at_once if isinstance(principal, Principal) else None
    return limit or config.max_connections


def too_long(config: ServiceConfig) -> ApiError:
    """Return the error for a heavy call whose time is over."""
    return ApiError(
        503,
        f"This took longer than the {config.heavy_timeout_s:g} s allowed for it.",
        code="deadline",
        headers={"retry-after": "30"},
    )


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
