"""The model behind the gateway: which headers are passed on, and how failures are reported."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import httpx
from opentelemetry.trace import Span
from starlette.requests import Request
from starlette.types import Receive

from promptguard.errors import CircuitOpen, ConfigError, ProviderError, ProviderTimeout
from promptguard.providers import Endpoint
from promptguard.service.errors import ApiError
from promptguard.service.lanes import Call, current_call
from promptguard.service.telemetry import Telemetry, fail, inject, note_answer

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
        call = current_call()
        with self._span(call, method, path) as span:
            try:
                with self._telemetry.calling_upstream():
                    response = await self._endpoint.send(
                        method,
                        path,
                        body=body,
                        headers=inject(span, headers),
                        # One tenant's failing requests must not close the upstream to the others.
                        circuit=call.tenant,
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
        call = current_call()
        with self._span(call, "POST", path) as span:
            try:
                opened = self._endpoint.stream(
                    "POST",
                    path,
                    body=body,
                    headers=inject(span, headers),
                    circuit=call.tenant,
                )
                async with opened as response:
                    self._check(response, headers)
                    response.stream = self._bounded(response)
                    yield response
            except (ProviderError, ConfigError) as error:
                raise self._failure(error) from None

    def _bounded(self, response: httpx.Response) -> httpx.AsyncByteStream:
        return _BoundedStream(response, self._timer() + self._stream_s, self._timer)

    @contextmanager
    def _span(self, call: Call, method: str, path: str) -> Iterator[Span]:
        provider = self._endpoint.provider
        span = self._telemetry.tracing.upstream(
            method,
            path,
            provider=provider.name,
            base_url=provider.base_url,
            model=call.model,
        )
        try:
            yield span
        except BaseException as error:
            fail(span, error.code if isinstance(error, ApiError) else type(error).__name__)
            raise
        finally:
            span.end()

    def check_stream(self, response: httpx.Response) -> None:
        """Raise an ApiError unless the answer is a stream of events."""
        if "text/event-stream" not in response.headers.get("content-type", ""):
            raise self.garbled()

    def garbled(self) -> ApiError:
        """Return the error for an answer of another format."""
        self._telemetry.upstream_error("garbled")
        return ApiError(
            502,
            f"{self.name} answered with something that is not an answer of this format.",
            code="upstream_error",
        )

    def cut_off(self) -> ApiError:
        """Return the error for a stream that ended in the middle."""
        self._telemetry.upstream_error("cut_off")
        return ApiError(502, f"{self.name} broke off its answer; try again.", code="upstream_error")

    def _check(self, response: httpx.Response, headers: Mapping[str, str]) -> None:
        """Raise for what the client cannot mend; a wrong key of its own it can."""
        status = response.status_code
        # The client cannot mend a wrong key of ours, and must not learn of it.
        is_our_key = status in (401, 403) and not any(name in headers for name in _KEY_HEADERS)
        # Redirects are failures: following one could send the conversation elsewhere.
        if status >= 500 or is_our_key or 300 <= status < 400:
            self._telemetry.upstream_error("status")
            retry = headers_back(response).get("retry-after")
            raise ApiError(
                504 if status == 504 else 502,
                f"{self.name} answered with status {status}.",
                code="upstream_error",
                headers={"retry-after": retry} if retry else None,
            )

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
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnected(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            # Until the call has ended: its connection goes back or is closed before we answer.
            await asyncio.wait((task,))
    if task.cancelled():
        raise ApiError(499, "The client left before the answer came.", code="client_left")
    return task.result()


async def disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
