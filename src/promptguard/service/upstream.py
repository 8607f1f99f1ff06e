"""The model behind the gateway: which headers are passed on, and how failures are reported."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

import httpx
from opentelemetry.trace import Span
from starlette.requests import Request
from starlette.types import Receive

from promptguard.errors import CircuitOpen, ConfigError, ProviderError, ProviderTimeout
from promptguard.providers import Endpoint
from promptguard.providers.endpoint import MAX_BODY_BYTES
from promptguard.service.errors import ApiError
from promptguard.service.lanes import current_call
from promptguard.service.telemetry import Telemetry, inject, note_answer

# Allow-lists in both directions: our own keys, cookies and routing headers stay here.
_PASSED_ON = (
    "openai-",
    "anthropic-",
    "x-title",
    "http-referer",
    "x-request-id",
    "traceparent",
    "tracestate",
)
_PASSED_BACK = (
    "openai-",
    "anthropic-",
    "x-request-id",
    "request-id",
    "x-ratelimit-",
    "retry-after",
    "content-type",
)
_KEY_HEADERS = ("authorization", "x-api-key")
T = TypeVar("T")


class Upstream:
    """The model behind the gateway; every failure is counted and raised as an ApiError."""

    def __init__(
        self,
        endpoint: Endpoint,
        telemetry: Telemetry,
        *,
        env: Mapping[str, str] | None = None,
        stream_s: float = 1800.0,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = endpoint.provider.name
        self._endpoint = endpoint
        self._stream_s = stream_s
        self._timer = timer
        self._telemetry = telemetry
        self._env = os.environ if env is None else env

    async def close(self) -> None:
        """Release the connections."""
        await self._endpoint.close()

    def headers(self, given: Mapping[str, str], *, lends_key: bool) -> dict[str, str]:
        """Return what is passed on of a client's headers.

        `lends_key`: the caller needs no key of ours, so a key it sends is meant for the
        upstream; it is used where we have none.
        """
        passed = {name: value for name, value in given.items() if name.startswith(_PASSED_ON)}
        key_env = self._endpoint.provider.key_env
        has_key = bool(key_env and self._env.get(key_env))
        # A key of the guard's own must never reach the upstream.
        if lends_key and not has_key:
            passed |= {name: given[name] for name in _KEY_HEADERS if name in given}
        return passed

    async def send(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str]
    ) -> httpx.Response:
        """Return a whole answer that the client may see: a success, or its own mistake."""
        with self._span(method, path) as span:
            try:
                with self._telemetry.calling_upstream():
                    response = await self._endpoint.send(
                        method,
                        path,
                        body=body,
                        headers=inject(span, headers),
                        # One tenant's failing requests must not close the upstream to the others.
                        circuit=current_call().tenant,
                    )
            except (ProviderError, ConfigError) as error:
                raise self._failure(error) from None
            self._check(response, headers)
            note_answer(span, response.content)
            return response

    @asynccontextmanager
    async def stream(
        self, path: str, *, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """Give an answer as it comes, for at most `stream_s`; leaving the block ends it."""
        with self._span("POST", path) as span:
            try:
                async with AsyncExitStack() as opened:
                    with self._telemetry.calling_upstream():
                        answer = self._endpoint.stream(
                            "POST",
                            path,
                            body=body,
                            headers=inject(span, headers),
                            circuit=current_call().tenant,
                        )
                        response = await opened.enter_async_context(answer)
                    self._check(response, headers)
                    end = self._timer() + self._stream_s
                    response.stream = _BoundedStream(response, end, self._timer)
                    yield response
            except (ProviderError, ConfigError) as error:
                raise self._failure(error) from None

    def _span(self, method: str, path: str) -> AbstractContextManager[Span]:
        provider, model = self._endpoint.provider, current_call().model
        return self._telemetry.tracing.upstream(
            method, path, provider=provider.name, base_url=provider.base_url, model=model
        )

    async def rest_of(self, response: httpx.Response) -> bytes:
        """Return the body of an answer that is no stream, as bounded as any other."""
        body = bytearray()
        try:
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MAX_BODY_BYTES:
                    raise self.garbled()
        except httpx.HTTPError:
            raise self.cut_off() from None
        return bytes(body)

    def check_stream(self, response: httpx.Response) -> None:
        """Raise an ApiError unless the answer is a stream of events."""
        if "text/event-stream" not in response.headers.get("content-type", ""):
            raise self.garbled()

    def garbled(self) -> ApiError:
        """Return the error for an answer of another format."""
        what = "answered with something that is not an answer of this format."
        return self._error("garbled", what)

    def cut_off(self) -> ApiError:
        """Return the error for a stream that ended in the middle."""
        return self._error("cut_off", "broke off its answer; try again.")

    def _error(self, kind: str, what: str, *, status: int = 502, retry: str = "") -> ApiError:
        self._telemetry.upstream_error(kind)
        headers = {"retry-after": retry} if retry else None
        return ApiError(status, f"{self.name} {what}", code="upstream_error", headers=headers)

    def _check(self, response: httpx.Response, headers: Mapping[str, str]) -> None:
        """Raise for what the client cannot mend; a wrong key of its own it can."""
        status = response.status_code
        # The client cannot mend a wrong key of ours, and must not learn of it.
        is_our_key = status in (401, 403) and not any(name in headers for name in _KEY_HEADERS)
        # Redirects are failures: following one could send the conversation elsewhere.
        if status >= 500 or is_our_key or 300 <= status < 400:
            retry = headers_back(response).get("retry-after", "")
            what, own = f"answered with status {status}.", 504 if status == 504 else 502
            raise self._error("status", what, status=own, retry=retry)

    def _failure(self, error: ProviderError | ConfigError) -> ApiError:
        kinds = {ProviderTimeout: "timeout", CircuitOpen: "circuit_open", ConfigError: "not_set_up"}
        kind = kinds.get(type(error), "unreachable")
        self._telemetry.upstream_error(kind)
        status = 504 if isinstance(error, ProviderTimeout) else 502
        return ApiError(status, str(error), code=f"upstream_{kind}")


class _BoundedStream(httpx.AsyncByteStream):
    """The bytes of an answer, which end with an error once their time is over.

    Each wait for the next piece is bounded elsewhere, so an endless answer ends soon after.
    """

    def __init__(self, response: httpx.Response, end: float, timer: Callable[[], float]) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        self._stream = response.stream
        self._request = response.request
        self._end = end
        self._timer = timer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            if self._timer() >= self._end:
                # As an error of httpx, it ends the stream like any other break of the connection.
                raise httpx.ReadTimeout("The answer takes too long.", request=self._request)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def headers_back(response: httpx.Response) -> dict[str, str]:
    """Return what the client gets of the upstream's headers."""
    # The bytes that came; httpx would read them as UTF-8, of which a header takes only some.
    headers = httpx.Headers(response.headers.raw, encoding="latin-1")
    return {name: value for name, value in headers.items() if name.startswith(_PASSED_BACK)}


async def while_connected(request: Request, work: Coroutine[object, object, T]) -> T:
    """Return the result of `work`; cancel it when the client disconnects meanwhile.

    A model's answer may take minutes and cost money, so it must not go on unread.
    """
    task = await ended_or_left(request.receive, work)
    if task.cancelled():
        raise ApiError(499, "The client left before the answer came.", code="client_left")
    return task.result()


async def ended_or_left(receive: Receive, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
    """Return the task of `work` once it has ended; cancelled where the client disconnected."""
    task, gone = asyncio.create_task(work), asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        gone.cancel()
        # Waited for: a call's connection goes back or is closed before the request is over.
        await asyncio.wait((task, gone))
    return task


async def disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
