"""The model behind the gateway: which headers are passed on, and how failures are reported."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx
from starlette.requests import Request
from starlette.types import Receive

from promptguard.errors import CircuitOpen, ConfigError, ProviderError, ProviderTimeout
from promptguard.providers import Endpoint
from promptguard.service.errors import ApiError
from promptguard.service.telemetry import Telemetry

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
_USER_INFO = re.compile(r"//[^/?#\s]*@")
_QUERY = re.compile(r"(\w+://[^\s?#]*)[?#]\S*")
T = TypeVar("T")


class Upstream:
    """The model behind the gateway; every failure is counted and raised as an ApiError."""

    def __init__(
        self, endpoint: Endpoint, telemetry: Telemetry, *, env: Mapping[str, str] | None = None
    ) -> None:
        self._endpoint = endpoint
        self._telemetry = telemetry
        self._env = os.environ if env is None else env

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._endpoint.provider.name

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
        if lends_key and not has_key:
            passed |= {name: given[name] for name in _KEY_HEADERS if name in given}
        return passed

    async def send(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str]
    ) -> httpx.Response:
        """Return a whole answer that the client may see: a success, or its own mistake."""
        try:
            with self._telemetry.calling_upstream():
                response = await self._endpoint.send(method, path, body=body, headers=headers)
        except (ProviderError, ConfigError) as error:
            raise self._failure(error) from None
        self._check(response, headers)
        return response

    @asynccontextmanager
    async def stream(
        self, path: str, *, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """Give an answer as it comes; leaving the block ends it."""
        try:
            opened = self._endpoint.stream("POST", path, body=body, headers=headers)
            async with opened as response:
                self._check(response, headers)
                yield response
        except (ProviderError, ConfigError) as error:
            raise self._failure(error) from None

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
        is_our_key = status in (401, 403) and not any(name in headers for name in _KEY_HEADERS)
        # Redirects are failures: following one could send the conversation elsewhere.
        if status >= 500 or is_our_key or 300 <= status < 400:
            self._telemetry.upstream_error("status")
            retry = response.headers.get("retry-after")
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


def headers_back(response: httpx.Response) -> dict[str, str]:
    """Return what the client gets of the upstream's headers."""
    return {
        name: value for name, value in response.headers.items() if name.startswith(_PASSED_BACK)
    }


def without_credentials(text: str) -> str:
    """Return `text` without the user names, passwords and queries of the URLs in it."""
    return _QUERY.sub(r"\1", _USER_INFO.sub("//", text))


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
            await asyncio.wait((task,))
    if task.cancelled():
        raise ApiError(499, "The client left before the answer came.", code="client_left")
    return task.result()


async def disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
