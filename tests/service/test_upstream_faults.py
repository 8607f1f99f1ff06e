"""Upstreams that are slow, down or wrong: bounded, counted, and told in OpenAI's shape."""

import json

import httpx
import pytest
from stub_upstream import StubUpstream

from promptguard.testing import ManualClock


class Broken(httpx.AsyncBaseTransport):
    """Fails as told, then answers."""

    def __init__(self, *faults: Exception | int) -> None:
        self._faults = list(faults)
        self._inner = httpx.ASGITransport(StubUpstream().app)
        self.calls = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.calls += 1
        if self._faults:
            fault = self._faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            return httpx.Response(fault, json={"error": {"message": "secret key sk-123"}})
        return await self._inner.handle_async_request(request)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("faults", "status", "code"),
    [
        ((httpx.ConnectError("x"),) * 2, 502, "upstream_unreachable"),
        ((httpx.ReadTimeout("x"),) * 2, 504, "upstream_timeout"),
        ((500, 500), 502, "upstream_error"),
        ((504, 504), 504, "upstream_error"),
        ((401,), 502, "upstream_error"),
        ((302,), 502, "upstream_error"),
    ],
)
async def test_failures_are_told_in_openais_shape(guarded, faults, status, code, stream) -> None:
    """The turn stays recorded, the reply carries its verdict, and no upstream text leaks."""
    guard = await guarded(transport=Broken(*faults))
    reply = await guard.chat("hello", stream=stream)
    assert reply.status_code == status
    assert reply.json()["error"]["code"] == code
    assert "sk-123" not in reply.text
    assert reply.headers["x-promptguard-action"] == "allow"
    assert (await guard.only_state()).turn_count == 1
    assert "promptguard_upstream_errors_total{" in (await guard.client.get("/metrics")).text


@pytest.mark.parametrize("stream", [False, True])
async def test_headers_of_the_upstream_need_not_be_ascii(guarded, stream) -> None:
    """They reach the client as the bytes that came."""
    raw = (b"openai-organization", "Zürich 東京".encode())
    kind = (b"content-type", b"text/event-stream" if stream else b"application/json")
    choice = {"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}
    body = json.dumps({"id": "x", "choices": [choice]})
    content = f"data: {body}\n\n" if stream else body
    answer = httpx.Response(200, headers=[raw, kind], content=content.encode())
    guard = await guarded(transport=httpx.MockTransport(lambda _: answer))
    reply = await guard.chat("hello", stream=stream)
    assert reply.status_code == 200
    assert raw in reply.headers.raw


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_learns_that_its_own_key_is_wrong(guarded, stream) -> None:
    """It brought the key for the upstream, so the upstream's 401 is its to mend."""
    guard = await guarded(transport=Broken(401))
    own = {"authorization": "Bearer sk-mine"}
    reply = await guard.chat("hello", stream=stream, headers=own)
    assert reply.status_code == 401
    assert reply.headers["x-promptguard-action"] == "allow"


async def test_a_passing_failure_is_tried_again(guarded) -> None:
    """Before the first byte only, and after a pause."""
    clock = ManualClock()
    broken = Broken(httpx.ConnectError("x"))
    guard = await guarded(transport=broken, clock=clock)
    assert (await guard.chat("hello")).status_code == 200
    assert broken.calls == 2
    assert clock.slept


async def test_an_upstream_that_keeps_failing_is_left_alone(guarded) -> None:
    """The breaker opens: no more calls, 502 at once."""
    broken = Broken(*[httpx.ConnectError("x")] * 10)
    guard = await guarded(transport=broken)
    codes = [(await guard.chat(f"hello {n}")).json()["error"]["code"] for n in range(4)]
    assert codes[-1] == "upstream_circuit_open"
    assert broken.calls == 4


async def test_the_clients_own_mistake_is_passed_on(guarded) -> None:
    """A 4xx of the upstream comes through as it is."""
    guard = await guarded()
    guard.upstream.answers(status=422)
    reply = await guard.chat("hello")
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "stub")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"object": "list"}', b'{"error": {"a": 1}}'])
async def test_something_else_than_a_completion_is_a_bad_gateway(guarded, body) -> None:
    """Never shown to the client."""

    async def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=body, headers={"content-type": "application/json"})

    guard = await guarded(transport=httpx.MockTransport(answer))
    reply = await guard.chat("hello")
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_error")


class Failing(httpx.AsyncByteStream):
    """A body that breaks off, or never ends."""

    def __init__(self, *, breaks: bool) -> None:
        self.breaks = breaks
        self.pieces = 0

    async def __aiter__(self):
        while self.pieces < 80:
            self.pieces += 1
            yield b"x" * 1_000_000
            if self.breaks:
                raise httpx.ReadError("x")


@pytest.mark.parametrize("breaks", [True, False])
async def test_an_error_in_place_of_a_stream_is_read_like_any_answer(guarded, breaks) -> None:
    """Up to the bound of whole answers, and a break is the upstream's failure."""
    body = Failing(breaks=breaks)
    refused = httpx.MockTransport(lambda _: httpx.Response(400, stream=body))
    guard = await guarded(transport=refused)
    reply = await guard.chat("hello", stream=True)
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_error")
    assert body.pieces < 80


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_are_timed(guarded, stream) -> None:
    """Until the headers of a stream, or the whole answer."""
    guard = await guarded()
    await guard.chat("hello", stream=stream)
    assert "promptguard_upstream_seconds_count 1.0" in (await guard.client.get("/metrics")).text


async def test_a_store_that_fails_keeps_the_turn_from_the_model(guarded) -> None:
    """What cannot be recorded is not passed on; the answer is 503, not 500."""
    from promptguard.errors import StoreError

    guard = await guarded()

    async def broken(*_: object, **__: object) -> None:
        raise StoreError("The disk is full; make room.")

    guard.controller.store.save = broken
    reply = await guard.chat("hello")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "store_unavailable")
    assert guard.upstream.calls == 0


async def test_a_bug_of_ours_is_not_a_bare_500(guarded) -> None:
    """It is logged by type and place, and answered in shape."""
    guard = await guarded()

    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("the user said: my secret")

    guard.controller.store.load = broken
    reply = await guard.chat("hello")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "internal_error")
    assert "secret" not in reply.text


async def test_a_reply_that_cannot_be_recorded_still_reaches_the_client(guarded, caplog) -> None:
    """The turn is recorded; the missing reply is logged."""
    from promptguard.errors import StoreError

    guard = await guarded()

    async def broken(*_: object, **__: object) -> None:
        raise StoreError("The disk is full; make room.")

    guard.controller.record_reply = broken
    reply = await guard.chat("hello")
    assert reply.json()["choices"][0]["message"]["content"] == "Certainly."
    assert "reply not recorded" in caplog.text
