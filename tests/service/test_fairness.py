"""Tests that one caller's requests do not starve, block or fail another's."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from endless import Endless
from live_server import live_guard

from promptguard.errors import VersionConflict
from promptguard.protocols import SessionKey
from promptguard.service.auth import key_hash
from promptguard.service.lanes import LONG_BODY_BYTES, MAX_HEAVY_PER_CALLER, Call, Lane, under_way
from promptguard.service.middleware import MAX_BRACKETS
from promptguard.service.openai_wire import ChatWire
from promptguard.turns.input import TurnInput
from promptguard.turns.replies import ReplyWatch

SESSION = {"x-session-id": "s"}


def keys(*names: str, **fields: Any) -> list[dict[str, Any]]:
    scopes = ("guard", "read", "admin")
    return [
        {"name": n, "sha256": key_hash(n), "tenant": n, "scopes": scopes, **fields} for n in names
    ]


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Endless:
    made = Endless()
    monkeypatch.setattr("promptguard.stored_sessions.walk", made)
    monkeypatch.setattr("promptguard.stored_sessions.TurnJudge.open", lambda *_, **__: None)
    return made


async def test_parallel_turns_of_one_session_are_queued_and_judged_once_each(guarded) -> None:
    """None conflicts, none is refused, none is judged twice."""
    guard = await guarded()
    conflicts, save = [], guard.controller.store.save

    async def counted(*args: Any, **kwargs: Any) -> None:
        try:
            await save(*args, **kwargs)
        except VersionConflict as error:
            conflicts.append(error)
            raise

    guard.controller.store.save = counted
    turns = [
        guard.client.post(
            "/v1/guard/turn", json={"user_input": f"question {number}", "session_id": "s"}
        )
        for number in range(40)
    ]
    replies = await asyncio.gather(*turns)
    assert {reply.status_code for reply in replies} == {200}
    assert sorted(reply.json()["turn"] for reply in replies) == list(range(1, 41))
    assert conflicts == []


async def test_a_replay_ends_at_its_deadline(guarded, endless: Endless) -> None:
    """The caller hears 503 with a time to come back, and the computation stops."""
    guard = await guarded(service={"heavy_timeout_s": 0.5})
    await guard.chat("hello", headers=SESSION)
    reply = await guard.client.post("/v1/sessions/s/replay", json={"preset": "strict"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "deadline")
    assert reply.headers["retry-after"]
    assert await asyncio.to_thread(endless.ended.wait, 20)


def test_a_replay_ends_when_its_client_leaves(endless: Endless) -> None:
    """Nobody pays for a result that nobody reads."""
    with live_guard() as live:
        turn = {"user_input": "hello", "session_id": "s"}
        httpx.post(f"{live.url}/v1/guard/turn", json=turn, timeout=20).raise_for_status()
        with socket.create_connection(("127.0.0.1", live.port)) as client:
            asked = b'{"preset": "strict"}'
            client.sendall(
                b"POST /v1/sessions/s/replay HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/json\r\n"
                b"content-length: %d\r\n\r\n%b" % (len(asked), asked)
            )
            assert endless.began.wait(20)
        assert endless.ended.wait(20)


async def test_heavy_calls_beyond_the_queue_are_refused(guarded, endless: Endless) -> None:
    """One caller may have a few of them waiting; turns go on meanwhile."""
    guard = await guarded(service={"heavy_timeout_s": 600})
    await guard.chat("hello", headers=SESSION)

    def replay() -> Any:
        return guard.client.post("/v1/sessions/s/replay", json={"preset": "strict"})

    running = [asyncio.ensure_future(replay()) for _ in range(MAX_HEAVY_PER_CALLER + 1)]
    assert await asyncio.to_thread(endless.began.wait, 20)
    running += [asyncio.ensure_future(replay()) for _ in range(2)]
    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    refused = done.pop().result()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
    assert refused.headers["retry-after"]
    assert (await guard.chat("hello again", headers=SESSION)).status_code == 200
    for task in running:
        task.cancel()
    await asyncio.wait(running)


async def test_long_requests_do_not_hold_short_ones_up(guarded) -> None:
    """With every thread for long bodies taken, a short turn is judged as ever."""
    guard = await guarded()
    taken, release = threading.Event(), threading.Event()

    def hold() -> None:
        taken.set()
        release.wait(20)

    with under_way(Call(owner="other", lane=Lane.LONG)):
        held = guard.service.lanes.submit(hold)
    taken.wait(20)
    long = asyncio.ensure_future(guard.chat("word " * LONG_BODY_BYTES))
    async with asyncio.timeout(20):
        assert (await guard.chat("hello", headers=SESSION)).status_code == 200
    assert not long.done()
    release.set()
    held.result(20)
    assert (await long).status_code == 200


async def test_a_key_has_a_limit_of_requests_at_once(guarded) -> None:
    """What is above it gets 429 at once; other keys do not notice."""
    guard = await guarded(service={"keys": keys("a", "b", requests_at_once=1)})
    entered, go_on = asyncio.Event(), asyncio.Event()
    load = guard.controller.store.load

    async def held(key: SessionKey) -> Any:
        if key.tenant == "a":
            entered.set()
            await go_on.wait()
        return await load(key)

    guard.controller.store.load = held
    first = asyncio.ensure_future(guard.chat("hello", headers={**SESSION, **bearer("a")}))
    await entered.wait()
    second = await guard.chat("hello", headers={**SESSION, **bearer("a")})
    assert (second.status_code, second.json()["error"]["code"]) == (429, "too_many_at_once")
    assert (await guard.chat("hello", headers=bearer("b"))).status_code == 200
    go_on.set()
    assert (await first).status_code == 200


async def test_one_tenant_does_not_open_the_circuit_for_another(guarded) -> None:
    """Failures that one tenant provokes are that tenant's."""
    guard = await guarded(service={"keys": keys("a", "b")})
    guard.upstream.answers(status=500)
    for number in range(6):
        reply = await guard.chat(f"question {number}", headers=bearer("a"))
    assert reply.json()["error"]["code"] == "upstream_circuit_open"
    guard.upstream.answers("Certainly.")
    assert (await guard.chat("hello", headers=bearer("b"))).status_code == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/guard/turn", "/v1/rubric"])
async def test_a_body_of_millions_of_lists_is_refused_unparsed(guarded, path: str) -> None:
    """Parsing it would hold the whole process up for seconds."""
    guard = await guarded()
    body = b'{"messages": [' + b"[]," * (MAX_BRACKETS + 1) + b"[]]}"
    reply = await guard.client.post(path, content=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "too_many_values")


async def test_long_bodies_are_parsed_off_the_event_loop(guarded, monkeypatch) -> None:
    """Megabytes of messages take their time, and others are served meanwhile."""
    guard = await guarded()
    threads, read = [], ChatWire.read_request

    def noted(self: Any, *args: Any) -> Any:
        threads.append(threading.current_thread())
        return read(self, *args)

    monkeypatch.setattr(ChatWire, "read_request", noted)
    await guard.chat("hello")
    await guard.chat("word " * LONG_BODY_BYTES)
    assert threads[0] is threading.main_thread()
    assert threads[1].name.startswith("promptguard-long")


LONG = "word " * LONG_BODY_BYTES


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/guard/turn", {"messages": [{"role": "user", "content": LONG}]}),
        (
            "/beta/litellm_basic_guardrail_api",
            {"input_type": "request", "texts": [LONG], "litellm_call_id": "c"},
        ),
        ("/v1/guard/check", {"messages": [{"role": "user", "content": LONG}]}),
        ("/v1/rubric", {"messages": [{"role": "assistant", "content": LONG}]}),
    ],
)
async def test_no_route_parses_a_long_body_on_the_event_loop(
    guarded, monkeypatch, path: str, body: dict[str, Any]
) -> None:
    """Whatever asks, megabytes of JSON hold nobody else up."""
    guard = await guarded()
    threads, loads = [], json.loads

    def noted(text: Any, *args: Any, **kwargs: Any) -> Any:
        if len(text) > LONG_BODY_BYTES:
            threads.append(threading.current_thread())
        return loads(text, *args, **kwargs)

    monkeypatch.setattr(json, "loads", noted)
    raw = json.dumps(body).encode()
    reply = await guard.client.post(path, content=raw, headers={"content-type": "application/json"})
    assert reply.status_code == 200
    assert threads
    assert threading.main_thread() not in threads


async def test_answers_of_unknown_calls_are_judged_off_the_event_loop(guarded, monkeypatch) -> None:
    """Megabytes of answer, whose turn nobody knows, hold nobody up."""
    guard = await guarded()
    threads, feed = [], ReplyWatch.feed

    def noted(self: ReplyWatch, text: str) -> bool:
        threads.append(threading.current_thread())
        return feed(self, text)

    monkeypatch.setattr(ReplyWatch, "feed", noted)
    body = {"input_type": "response", "texts": ["word " * 2000], "litellm_call_id": "unknown"}
    reply = await guard.client.post("/beta/litellm_basic_guardrail_api", json=body)
    assert reply.json()["action"] == "NONE"
    assert threads
    assert threading.main_thread() not in threads


async def long_session(guard: Any, turns: int = 150) -> None:
    for number in range(turns):
        result = await guard.controller.judge_turn("s", TurnInput(text=f"question {number}"))
        await guard.controller.record_reply(result, f"answer {number}")


async def test_a_turn_of_a_long_session_does_not_read_all_of_it(guarded) -> None:
    """The cost of a turn does not grow with the session."""
    guard = await guarded()
    await long_session(guard)

    async def whole(_: SessionKey) -> Any:
        raise AssertionError("the whole transcript was read")

    guard.controller.store.transcript = whole
    for number in range(3):
        assert (await guard.chat(f"more {number}", headers=SESSION)).status_code == 200
    recent = [{"role": "user", "content": "more 2"}, {"role": "assistant", "content": "Certainly."}]
    body = {"session_id": "s", "messages": [*recent, {"role": "user", "content": "and now?"}]}
    reply = await guard.client.post("/v1/guard/turn", json=body)
    assert reply.json()["history"] == "intact"


async def test_a_history_older_than_the_end_of_the_transcript_is_still_found(guarded) -> None:
    """Only a message that was never stored is new; an old one is known."""
    guard = await guarded()
    await long_session(guard)
    known = [
        {"role": role, "content": f"{what} {number}"}
        for number in range(2)
        for role, what in (("user", "question"), ("assistant", "answer"))
    ]
    invented = {"role": "user", "content": "question never asked"}

    async def history(*past: dict[str, str]) -> str:
        asked = {"role": "user", "content": f"after {len(past)} messages?"}
        body = {"session_id": "s", "messages": [*past, asked]}
        return (await guard.client.post("/v1/guard/turn", json=body)).json()["history"]

    assert await history(known[0], invented, known[1]) == "rewritten"
    assert await history(*known) == "dropped"


async def test_an_endless_stream_ends(guarded) -> None:
    """An upstream that always has one more piece is cut off when the time is over."""
    guard = None

    class Endlessly(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            chunk = {"id": "c", "choices": [{"index": 0, "delta": {"content": "and "}}]}
            while True:
                guard.clock.advance(10.0)
                yield f"data: {json.dumps(chunk)}\n\n".encode()

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(
            200, headers={"content-type": "text/event-stream"}, stream=Endlessly()
        )

    guard = await guarded(
        service={"stream_timeout_s": 100.0}, transport=httpx.MockTransport(answer)
    )
    async with asyncio.timeout(20):
        reply = await guard.chat("hello", stream=True)
    assert "upstream_error" in reply.text
    assert reply.text.count("and ") < 12


def test_idle_connections_do_not_keep_probes_out() -> None:
    """The longest idle one makes room, so that the service is not restarted for nothing."""
    with live_guard(service={"max_connections": 8}) as live:
        idle = [socket.create_connection(("127.0.0.1", live.port)) for _ in range(40)]
        try:
            for _ in range(3):
                assert httpx.get(f"{live.url}/healthz", timeout=20).status_code == 200
            assert httpx.get(f"{live.url}/readyz", timeout=20).status_code == 200
        finally:
            for each in idle:
                each.close()
