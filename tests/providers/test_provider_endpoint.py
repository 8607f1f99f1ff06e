"""One endpoint: retries, breaker, bounded time, and what is raised when it fails."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import SSE_HEAD, Script, chunk, local, seams_of, serving

from promptguard.errors import CircuitOpen, ConfigError, ProviderError, ProviderTimeout
from promptguard.providers import Endpoint, open_endpoint
from promptguard.providers import endpoint as endpoint_module
from promptguard.providers.endpoint import CircuitBreaker, delay_s, is_retryable
from promptguard.testing import ManualClock


def endpoint_of(script: Script, clock: ManualClock | None = None, **values: object) -> Endpoint:
    return open_endpoint("box", local(**values), seams=seams_of(script, clock))


async def test_bodies_and_answers_pass_unchanged() -> None:
    """The gateway's bytes, headers and the upstream's error come through as they are."""
    script = Script(httpx.Response(404, content=b'{"error": 1}', headers={"x-request-id": "7"}))
    endpoint = endpoint_of(script)
    response = await endpoint.send(
        "POST", "/chat/completions", body=b'{"a":  1}', headers={"X-Trace": "t"}
    )
    sent = script.requests[0]
    assert str(sent.url) == "http://test/v1/chat/completions"
    assert (sent.content, sent.headers["x-trace"]) == (b'{"a":  1}', "t")
    assert sent.headers["content-type"] == "application/json"
    assert (response.status_code, response.content) == (404, b'{"error": 1}')
    assert response.headers["x-request-id"] == "7"
    await endpoint.close()


@pytest.mark.parametrize(
    "first",
    [
        httpx.Response(429),
        httpx.Response(503),
        httpx.ReadTimeout("slow"),
        httpx.ConnectError("refused"),
        httpx.RemoteProtocolError("cut"),
    ],
)
async def test_passing_failures_are_tried_again(first: httpx.Response | Exception) -> None:
    """After a wait the second attempt's answer is the answer."""
    clock = ManualClock()
    script = Script(first, httpx.Response(200, content=b"ok"))
    response = await endpoint_of(script, clock).send("GET", "/models")
    assert response.content == b"ok"
    assert clock.slept == [0.375]


async def test_retries_are_bounded_and_the_last_answer_is_returned() -> None:
    """Three answers of 503 in all, each wait longer, and the third is given to the caller."""
    clock = ManualClock()
    script = Script(*(httpx.Response(503, content=b"%d" % n) for n in range(3)))
    response = await endpoint_of(script, clock, retries=2).send("GET", "/models")
    assert (response.status_code, response.content) == (503, b"2")
    assert clock.slept == [0.375, 0.75]


async def test_a_refusal_is_not_tried_again() -> None:
    """400 stays 400 and costs one request."""
    script = Script(httpx.Response(400))
    assert (await endpoint_of(script).send("POST", "/x", json={})).status_code == 400
    assert len(script.requests) == 1


async def test_retry_after_is_honoured() -> None:
    """The endpoint's own wish sets the wait."""
    clock = ManualClock()
    script = Script(httpx.Response(429, headers={"retry-after": "7"}), httpx.Response(200))
    await endpoint_of(script, clock).send("GET", "/models")
    assert 7 <= clock.slept[0] < 8


async def test_a_wish_longer_than_the_timeout_is_left_to_the_caller() -> None:
    """Nobody wants to wait an hour inside a call."""
    clock = ManualClock()
    script = Script(httpx.Response(429, headers={"retry-after": "3600"}))
    assert (await endpoint_of(script, clock).send("GET", "/models")).status_code == 429
    assert clock.slept == []


async def test_the_circuit_opens_and_closes() -> None:
    """After failures in a row calls fail at once; after the cooldown one success heals."""
    clock = ManualClock()
    script = Script(*(httpx.ConnectError("x") for _ in range(3)), httpx.Response(200))
    endpoint = endpoint_of(script, clock, retries=0, breaker_failures=3, breaker_cooldown_s=30)
    for _ in range(3):
        with pytest.raises(ProviderError, match="cannot be reached"):
            await endpoint.send("GET", "/models")
    with pytest.raises(CircuitOpen, match="left alone for another 30 s"):
        await endpoint.send("GET", "/models")
    assert len(script.requests) == 3
    clock.advance(30)
    assert (await endpoint.send("GET", "/models")).status_code == 200


async def test_retrying_stops_when_the_circuit_opens() -> None:
    """The caller gets the failure itself, not the breaker's error."""
    clock = ManualClock()
    script = Script(httpx.ConnectError("x"), httpx.ConnectError("x"))
    endpoint = endpoint_of(script, clock, retries=5, breaker_failures=2)
    with pytest.raises(ProviderError, match="cannot be reached"):
        await endpoint.send("GET", "/models")
    assert len(script.requests) == 2


async def test_a_circuit_opens_for_those_who_failed_in_it() -> None:
    """One tenant's failures do not close the endpoint to the others."""
    script = Script(httpx.Response(500), httpx.Response(500), httpx.Response(200))
    endpoint = endpoint_of(script, retries=0, breaker_failures=2)
    for _ in range(2):
        await endpoint.send("POST", "/chat/completions", json={}, circuit="noisy")
    with pytest.raises(CircuitOpen):
        await endpoint.send("GET", "/models", circuit="noisy")
    assert (await endpoint.send("GET", "/models", circuit="quiet")).status_code == 200


async def test_refusals_do_not_open_the_circuit() -> None:
    """An endpoint that answers is alive, whatever it answers."""
    script = Script(*(httpx.Response(429) for _ in range(9)))
    endpoint = endpoint_of(script, retries=0, breaker_failures=2)
    for _ in range(9):
        assert (await endpoint.send("GET", "/models")).status_code == 429


async def test_a_missing_key_names_the_variable_at_first_use() -> None:
    """Opening needs no key; using does, unless the caller brings one."""
    script = Script(httpx.Response(200), httpx.Response(200))
    endpoint = open_endpoint("openai", seams=seams_of(script))
    with pytest.raises(ConfigError, match="set OPENAI_API_KEY"):
        await endpoint.send("GET", "/models")
    await endpoint.send("GET", "/models", headers={"Authorization": "Bearer own"})
    assert script.requests[0].headers["authorization"] == "Bearer own"
    ollama = open_endpoint("ollama", seams=seams_of(script))
    await ollama.send("GET", "/models")
    assert "authorization" not in script.requests[1].headers


async def test_the_key_comes_from_the_environment() -> None:
    """From the provider's variable, or from the one the gateway names."""
    script = Script(httpx.Response(200), httpx.Response(200))
    env = {"OPENAI_API_KEY": " k1\n", "OTHER": "k2", "BAD": "k\u00e9y"}
    await open_endpoint("openai", seams=seams_of(script, env=env)).send("GET", "/m")
    named = open_endpoint("ollama", key_env="OTHER", seams=seams_of(script, env=env))
    await named.send("GET", "/m")
    sent = [request.headers["authorization"] for request in script.requests]
    assert sent == ["Bearer k1", "Bearer k2"]
    for name in ("ABSENT", "BAD"):
        endpoint = open_endpoint("ollama", key_env=name, seams=seams_of(script, env=env))
        with pytest.raises(ConfigError, match=name):
            await endpoint.send("GET", "/m")


async def test_compressed_answers_are_given_decoded() -> None:
    """The body is readable and no header says otherwise."""
    packed = gzip.compress(b"plain")
    script = Script(httpx.Response(200, content=packed, headers={"content-encoding": "gzip"}))
    response = await endpoint_of(script).send("GET", "/models")
    assert response.content == b"plain"
    assert "content-encoding" not in response.headers


async def test_headers_of_an_answer_need_not_be_ascii() -> None:
    """They come as the bytes that were sent."""
    raw = (b"x-region", "Zürich 東京".encode())
    response = await endpoint_of(Script(httpx.Response(200, headers=[raw]))).send("GET", "/m")
    assert raw in [(name.lower(), value) for name, value in response.headers.raw]


@pytest.mark.parametrize("encoding", ["gzip, gzip", "zstd", "br", "deflate,gzip", "x-unknown"])
async def test_an_answer_that_could_unpack_to_any_size_is_an_error(encoding: str) -> None:
    """A kilobyte packed twice may fill the memory before its size is known."""
    packed = gzip.compress(gzip.compress(bytes(1_000_000)))
    answer = httpx.Response(200, stream=Raw(packed), headers={"content-encoding": encoding})
    script = Script(answer)
    with pytest.raises(ProviderError, match="compression"):
        await endpoint_of(script).send("GET", "/models")
    assert script.requests[0].headers["accept-encoding"] == "gzip"
    streamed = httpx.Response(200, stream=Raw(packed), headers={"content-encoding": encoding})
    with pytest.raises(ProviderError, match="compression"):
        await drain(endpoint_of(Script(streamed)), [])


@pytest.mark.parametrize("encoding", ["GZIP", "Gzip"])
async def test_a_compression_is_known_in_any_case(encoding: str) -> None:
    """Names of encodings have none."""
    answer = httpx.Response(
        200, stream=Raw(gzip.compress(b"fine")), headers={"content-encoding": encoding}
    )
    assert (await endpoint_of(Script(answer)).send("GET", "/models")).content == b"fine"


class Raw(httpx.AsyncByteStream):
    """Bytes that nobody has unpacked yet."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._content


async def test_an_endless_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and asking again would not help."""
    monkeypatch.setattr(endpoint_module, "MAX_BODY_BYTES", 100)
    script = Script(httpx.Response(200, content=b"x" * 101))
    with pytest.raises(ProviderError, match="more than 100 bytes"):
        await endpoint_of(script).send("GET", "/models")


async def test_redirects_are_not_followed() -> None:
    """An upstream cannot send us elsewhere."""
    script = Script(httpx.Response(302, headers={"location": "http://169.254.169.254/"}))
    assert (await endpoint_of(script).send("GET", "/models")).status_code == 302
    assert len(script.requests) == 1


async def drain(endpoint: Endpoint, seen: list[bytes]) -> None:
    async with endpoint.stream("POST", "/x", json={}) as response:
        async for piece in response.aiter_bytes():
            seen.append(piece)  # noqa: PERF401 - what came before the error counts


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    for _ in range(1000):
        writer.write(b"x")
        await writer.drain()
        await asyncio.wait({asyncio.ensure_future(reader.read())}, timeout=0.01)


async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\x01 this is not HTTP at all\r\n\r\n")


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort")


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (silence, ProviderTimeout),
        (drip, ProviderTimeout),
        (nonsense, ProviderError),
        (hang_up, ProviderError),
    ],
)
async def test_a_real_server_that_misbehaves_is_an_error_in_bounded_time(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    kind: type[ProviderError],
) -> None:
    """Silence, a drip without end, garbage and a cut answer; the name is in the message."""
    async with serving(handler) as url:
        endpoint = open_endpoint("box", local(url, timeout_s=0.1, retries=0))
        with pytest.raises(kind, match=r"^box ") as caught:
            await asyncio.wait_for(endpoint.send("POST", "/x", json={}), 10)
        assert type(caught.value) is kind
        await endpoint.close()


async def test_nobody_listening_says_what_to_start() -> None:
    """The advice for a local server is the command that starts it."""
    server = await asyncio.start_server(silence, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    config = local(retries=0).model_copy(
        update={"base_urls": {"ollama": f"http://127.0.0.1:{port}/v1"}}
    )
    endpoint = open_endpoint("ollama", config)
    with pytest.raises(ProviderError, match="ollama serve"):
        await endpoint.send("GET", "/models")
    await endpoint.close()


async def test_a_stream_cut_after_its_first_byte_is_raised_and_not_repeated() -> None:
    """Bytes the caller has seen are never sent twice."""
    calls = 0

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        writer.write(SSE_HEAD + chunk(b"data: first\n\n"))
        await writer.drain()

    async with serving(cut) as url:
        endpoint = open_endpoint("box", local(url))
        seen: list[bytes] = []
        with pytest.raises(ProviderError, match="broke off"):
            await drain(endpoint, seen)
        assert (seen, calls) == ([b"data: first\n\n"], 1)
        await endpoint.close()


async def test_a_stream_is_tried_again_before_its_first_byte() -> None:
    """An upstream that hangs up at once gets a second chance."""
    script = Script(httpx.RemoteProtocolError("cut"), httpx.Response(200, content=b"ok"))
    async with endpoint_of(script).stream("POST", "/x", json={}) as response:
        assert await response.aread() == b"ok"


async def test_a_stream_that_falls_silent_times_out() -> None:
    """Each wait for the next piece is bounded."""

    async def pause(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + chunk(b"data: first\n\n"))
        await reader.read()

    async with serving(pause) as url:
        endpoint = open_endpoint("box", local(url, timeout_s=0.1, retries=0))
        with pytest.raises(ProviderTimeout):
            await drain(endpoint, [])
        await endpoint.close()


@pytest.mark.parametrize("is_stream", [False, True])
async def test_cancelling_closes_the_connection(is_stream: bool) -> None:
    """The upstream notices that nobody waits any more; the breaker is not blamed."""
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def wait_for_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_stream:
            writer.write(SSE_HEAD + chunk(b"data: first\n\n"))
        arrived.set()
        await reader.read()
        gone.set()

    async with serving(wait_for_end) as url:
        endpoint = open_endpoint("box", local(url, breaker_failures=1))

        async def call() -> None:
            if not is_stream:
                await endpoint.send("POST", "/x", json={})
            await drain(endpoint, [])

        task = asyncio.create_task(call())
        await asyncio.wait_for(arrived.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 10)
        assert endpoint._breaker("").enter(0.0)
        await endpoint.close()


def test_an_endpoint_works_in_one_event_loop_after_another() -> None:
    """Connections belong to a loop; the endpoint and its breaker do not."""
    script = Script(httpx.Response(200), httpx.Response(200))
    endpoint = endpoint_of(script)
    for _ in range(2):
        assert asyncio.run(endpoint.send("GET", "/models")).status_code == 200


@given(
    attempt=st.integers(0, 50),
    asked=st.none() | st.floats(0, 1000),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_waits_are_bounded_and_never_shorter_than_asked(
    attempt: int, asked: float | None, chance: float
) -> None:
    """Whatever chance does, the wait lies between what was asked and a little more."""
    wait = delay_s(attempt, asked, lambda: chance)
    assert (asked or 0.0) <= wait <= (asked or 0.0) + 8.0
    assert wait > 0 or asked is not None


def test_waits_grow() -> None:
    """Each wait is longer than the one before, up to the longest."""
    waits = [delay_s(attempt, None, lambda: 0.5) for attempt in range(6)]
    assert waits[:5] == sorted(waits[:5])
    assert waits[5] == waits[4] == 6.0


def test_only_passing_failures_are_worth_repeating() -> None:
    """A refused request stays refused."""
    assert all(is_retryable(status) for status in (408, 429, 500, 502, 503, 504, 529))
    assert not any(is_retryable(status) for status in (200, 301, 400, 401, 404, 422))


def opened() -> CircuitBreaker:
    breaker = CircuitBreaker(failures=2, cooldown_s=10)
    for _ in range(2):
        assert breaker.enter(0)
        breaker.fail(0)
    return breaker


def test_a_circuit_opens_after_failures_in_a_row() -> None:
    """A success in between starts the count anew."""
    breaker = CircuitBreaker(failures=2, cooldown_s=10)
    breaker.fail(0)
    breaker.succeed()
    breaker.fail(0)
    assert breaker.enter(0)
    breaker.fail(0)
    assert not breaker.enter(0)
    assert breaker.remaining_s(4) == 6


def test_after_the_cooldown_one_call_may_try() -> None:
    """The others wait for its outcome."""
    breaker = opened()
    assert not breaker.enter(9.9)
    assert breaker.enter(10)
    assert not breaker.enter(10)
    breaker.succeed()
    assert breaker.enter(10)
    assert breaker.enter(10)


def test_a_failed_try_opens_again() -> None:
    """One failure suffices then."""
    breaker = opened()
    assert breaker.enter(10)
    breaker.fail(10)
    assert not breaker.enter(19.9)
    assert breaker.enter(20)


def test_a_withdrawn_try_lets_the_next_one_in() -> None:
    """A cancelled caller neither closes nor blocks."""
    breaker = opened()
    assert breaker.enter(10)
    breaker.withdraw()
    assert breaker.enter(10)
