"""One HTTP endpoint: a shared client, bounded time, retries and a circuit breaker.

Used by the providers here and by the gateway, which passes bodies on unchanged.
"""

from __future__ import annotations

import asyncio
import json as json_module
import os
import random
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import httpx

from promptguard.config import EndpointConfig
from promptguard.errors import ConfigError, ProviderError, ProviderTimeout
from promptguard.providers.faults import circuit_open, fault_of, odd_encoding, retry_after_of
from promptguard.providers.registry import ProviderRow
from promptguard.usage import Usage

MAX_CIRCUITS = 1000
MAX_BODY_BYTES = 64 * 1024 * 1024
_CONNECT_S = 10.0
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 8.0
# Each unpacks a piece to a thousandfold at most; others, or one within another, to any size.
_DECODED = ("", "identity", "gzip", "deflate")
_TRANSFER_HEADERS = (b"content-encoding", b"content-length", b"transfer-encoding")
_EARLIER = "promptguard.earlier_usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSeams:
    """What an endpoint takes from the world; tests put their own in place."""

    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    transport: httpx.AsyncBaseTransport | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One answer as the retries see it: the status that counts, and what it cost."""

    status: int
    usage: Usage


Measure = Callable[[httpx.Response], Attempt]


class CircuitBreaker:
    """Opens after `failures` in a row; after `cooldown_s` it lets one trial call through.

    Every `enter` that returned True is followed by one of `succeed`, `fail` and `withdraw`.
    """

    def __init__(self, *, failures: int, cooldown_s: float) -> None:
        self._limit = failures
        self._cooldown_s = cooldown_s
        self._failures = 0
        self._opened_at: float | None = None
        self._is_probing = False

    def enter(self, now: float) -> bool:
        """Return whether a call may be made; where the cooldown is over, only one may."""
        if self._opened_at is None:
            return True
        if self._is_probing or self.remaining_s(now) > 0:
            return False
        self._is_probing = True
        return True

    def remaining_s(self, now: float) -> float:
        """Return how long the circuit stays open."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self._cooldown_s - now)

    def succeed(self) -> None:
        """Close the circuit."""
        self._failures, self._opened_at, self._is_probing = 0, None, False

    def fail(self, now: float) -> None:
        """Count a failure; the last one allowed, or a failed trial call, opens the circuit."""
        self._failures += 1
        if self._opened_at is not None or self._failures >= self._limit:
            self._opened_at = now
        self._is_probing = False

    def withdraw(self) -> None:
        """Count nothing: the caller was cancelled, the endpoint may be well."""
        self._is_probing = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    url: str
    headers: httpx.Headers
    body: bytes | None
    circuit: str


class Endpoint:
    """Calls one endpoint. Answers with an error status are returned, not raised.

    `timeout_s` bounds each attempt up to the answer's headers (`send`: up to its last byte) and
    then each wait for the next piece. 408, 429, 5xx, timeouts and lost connections are tried
    again up to `retries` times, as long as the caller has not seen a byte. What the attempts
    before the last one cost is `earlier_usage` of the answer, or part of the error's `usage`.
    Failures open the `circuit` they happened in and no other, so that one tenant's requests
    cannot close the endpoint to the rest.
    """

    def __init__(
        self, provider: ProviderRow, config: EndpointConfig, seams: EndpointSeams | None = None
    ) -> None:
        self.provider = provider
        self._config = config
        self._seams = seams or EndpointSeams()
        self._breakers: OrderedDict[str, CircuitBreaker] = OrderedDict()
        # Connections belong to an event loop.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )
        self._users = 1

    async def send(
        self,
        method: str,
        path: str,
        *,
        json: object | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        measure: Measure | None = None,
        circuit: str = "",
    ) -> httpx.Response:
        """Return the whole answer, its body decoded and at most MAX_BODY_BYTES long.

        `measure` reads status and cost from the body, where the status line does not tell them.
        Raises ProviderTimeout, CircuitOpen or ProviderError where there is none.
        """
        request = self._request(method, path, json, body, headers, circuit)
        return await self._respond(request, _read_whole, measure or _by_status_line)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        json: object | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        circuit: str = "",
    ) -> AsyncIterator[httpx.Response]:
        """Give the answer as soon as its headers are there; leaving the block closes it.

        A connection that breaks while the block reads raises ProviderError out of it.
        """
        request = self._request(method, path, json, body, headers, circuit)
        response = await self._respond(request, _as_it_is, _by_status_line)
        try:
            yield response
        except httpx.HTTPError as error:
            self._breaker(circuit).fail(self._seams.clock())
            raise self._fault(error) from None
        finally:
            await response.aclose()

    def share(self) -> Endpoint:
        """Return itself for one more user; each user closes once."""
        self._users += 1
        return self

    async def close(self) -> None:
        """Release the connections when the last user has closed."""
        self._users -= 1
        if self._users > 0:
            return
        if client := self._clients.pop(asyncio.get_running_loop(), None):
            await client.aclose()

    async def _respond(self, request: _Request, read: _Read, measure: Measure) -> httpx.Response:
        earlier, attempts = Usage(), 0
        breaker = self._breaker(request.circuit)
        while True:
            if not breaker.enter(self._seams.clock()):
                fault = circuit_open(self.provider, breaker.remaining_s(self._seams.clock()))
                raise _charged(fault, earlier)
            try:
                outcome = await self._attempt(request, read, breaker)
            except ProviderError as error:
                # An answer that is not taken may have been billed.
                billed = Usage(calls=1, unpriced_calls=int(not self.provider.is_free))
                raise _charged(error, earlier + billed) from None
            measured = self._measured(outcome, measure, breaker)
            wait_s = self._wait_after(outcome, measured.status, attempts, breaker)
            if wait_s is None:
                if isinstance(outcome, ProviderError):
                    raise _charged(outcome, earlier + measured.usage)
                outcome.extensions[_EARLIER] = earlier
                return outcome
            if isinstance(outcome, httpx.Response):
                await outcome.aclose()
            earlier, attempts = earlier + measured.usage, attempts + 1
            await self._seams.sleep(wait_s)

    def _breaker(self, circuit: str) -> CircuitBreaker:
        """Return the breaker of one circuit; the least recently used are forgotten."""
        config = self._config
        new = CircuitBreaker(failures=config.breaker_failures, cooldown_s=config.breaker_cooldown_s)
        breaker = self._breakers.setdefault(circuit, new)
        self._breakers.move_to_end(circuit)
        if len(self._breakers) > MAX_CIRCUITS:
            self._breakers.popitem(last=False)
        return breaker

    async def _attempt(
        self, request: _Request, read: _Read, breaker: CircuitBreaker
    ) -> httpx.Response | ProviderError:
        try:
            async with asyncio.timeout(self._config.timeout_s):
                return await read(await self._begin(request))
        except (httpx.HTTPError, TimeoutError) as error:
            return self._fault(error)
        except BaseException:
            breaker.withdraw()
            raise

    def _measured(
        self, outcome: httpx.Response | ProviderError, measure: Measure, breaker: CircuitBreaker
    ) -> Attempt:
        """Return status and cost of an attempt, and count it at the breaker."""
        if isinstance(outcome, ProviderError):
            breaker.fail(self._seams.clock())
            # An endpoint may go on, and bill, after we stopped waiting.
            is_unpriced = isinstance(outcome, ProviderTimeout) and not self.provider.is_free
            return Attempt(status=0, usage=Usage(calls=1, unpriced_calls=int(is_unpriced)))
        measured = measure(outcome)
        if measured.status >= 500:
            breaker.fail(self._seams.clock())
        else:
            breaker.succeed()
        return measured

    def _wait_after(
        self,
        outcome: httpx.Response | ProviderError,
        status: int,
        attempt: int,
        breaker: CircuitBreaker,
    ) -> float | None:
        """Return how long to wait before trying again, None where this outcome stands."""
        if attempt >= self._config.retries or breaker.remaining_s(self._seams.clock()) > 0:
            return None
        if isinstance(outcome, ProviderError):
            return delay_s(attempt, None, self._seams.random)
        if not is_retryable(status):
            return None
        asked_s = retry_after_of(outcome.headers)
        is_long = (asked_s or 0.0) > self._config.timeout_s
        return None if is_long else delay_s(attempt, asked_s, self._seams.random)

    async def _begin(self, request: _Request) -> httpx.Response:
        client = self._client()
        built = client.build_request(
            request.method, request.url, headers=request.headers, content=request.body
        )
        response = await client.send(built, stream=True)
        if response.headers.get("content-encoding", "").strip().lower() not in _DECODED:
            await response.aclose()
            raise odd_encoding(self.provider)
        return response

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            timeout_s = self._config.timeout_s
            self._clients[loop] = httpx.AsyncClient(
                transport=self._seams.transport,
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
                limits=httpx.Limits(max_connections=1000, max_keepalive_connections=50),
                headers={"user-agent": "promptguard", "accept-encoding": "gzip"},
            )
        return self._clients[loop]

    def _request(
        self,
        method: str,
        path: str,
        json: object | None,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        circuit: str,
    ) -> _Request:
        given = {name.lower(): value for name, value in (headers or {}).items()}
        if "authorization" not in given and (key := provider_key(self.provider, self._seams.env)):
            given["authorization"] = f"Bearer {key}"
        if json is not None:
            body = _encoded(json)
        if body is not None:
            given.setdefault("content-type", "application/json")
        # The bytes that came: the name of a client's application need not be ASCII.
        sent, url = httpx.Headers(given, encoding="latin-1"), self.provider.base_url + path
        return _Request(method=method, url=url, headers=sent, body=body, circuit=circuit)

    def _fault(self, error: Exception) -> ProviderError:
        return fault_of(error, self.provider, self._config.timeout_s)


_Read = Callable[[httpx.Response], Awaitable[httpx.Response]]


def is_retryable(status: int) -> bool:
    """Return whether a retry may get a better answer than this status."""
    return status in (408, 429) or status >= 500


def delay_s(attempt: int, retry_after_s: float | None, random: Callable[[], float]) -> float:
    """Return the wait after the attempt with this number (from 0).

    It doubles with each attempt and is spread at random, so that many clients do not come back
    at the same moment; what the endpoint asked for is never undercut.
    """
    backoff = min(_FIRST_WAIT_S * 2.0**attempt, _LONGEST_WAIT_S)
    if retry_after_s is None:
        return backoff * (0.5 + 0.5 * random())
    return retry_after_s + 0.5 * backoff * random()


def provider_key(provider: ProviderRow, env: Mapping[str, str]) -> str | None:
    """Return the key for a provider, None where it needs none; ConfigError where it is missing."""
    name = provider.key_env
    key = env.get(name, "").strip() if name else ""
    if not key and provider.needs_key:
        raise ConfigError(f"{provider.name} needs a key: set {name}.")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"The key in {name} has characters no key has; copy it again.")
    return key or None


def earlier_usage(response: httpx.Response) -> Usage:
    """Return what the attempts before this answer cost."""
    usage = response.extensions.get(_EARLIER)
    return usage if isinstance(usage, Usage) else Usage()


def _by_status_line(response: httpx.Response) -> Attempt:
    return Attempt(status=response.status_code, usage=Usage(calls=1))


def _charged(fault: ProviderError, usage: Usage) -> ProviderError:
    fault.usage = usage
    return fault


def _encoded(json: object) -> bytes:
    # Half of a surrogate pair has no UTF-8 form; the model gets a question mark instead.
    return json_module.dumps(json, ensure_ascii=False).encode("utf-8", "replace")


async def _as_it_is(response: httpx.Response) -> httpx.Response:
    return response


async def _read_whole(response: httpx.Response) -> httpx.Response:
    body = bytearray()
    try:
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                raise ProviderError(
                    f"The upstream answered with more than {MAX_BODY_BYTES} bytes; "
                    "check that it is a model's endpoint."
                )
    finally:
        await response.aclose()
    # As bytes: their text need not be ASCII, and httpx would encode it as that.
    headers = [
        (name, value)
        for name, value in response.headers.raw
        if name.lower() not in _TRANSFER_HEADERS
    ]
    return httpx.Response(
        response.status_code, headers=headers, content=bytes(body), request=response.request
    )
