"""A model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from loopback import SSE_HEAD, Script, answer, chunk, event, local, said, seams_of, serving

from promptguard.conversation import Message, Role
from promptguard.errors import ProviderError, ProviderRejected
from promptguard.protocols import Provider
from promptguard.providers import open_provider
from promptguard.usage import Usage

ASK = (Message(role=Role.USER, content="words-of-the-user"),)
SCHEMA = {"type": "object", "properties": {"truth": {"type": "number"}}}


def provider_of(script: Script, model: str = "box/m", **options: object) -> Provider:
    env = {"OPENAI_API_KEY": "k", "OPENROUTER_API_KEY": "k"}
    return open_provider(
        model, local(retries=0), options=options or None, seams=seams_of(script, env=env)
    )


def ok(**more: object) -> httpx.Response:
    return httpx.Response(200, json=answer(**more))


def stream_of(*events: bytes) -> httpx.Response:
    return httpx.Response(200, content=b"".join(events))


async def collect(provider: Provider) -> list[str]:
    return [piece async for piece in provider.stream(ASK)]


async def test_an_answer_is_read_with_its_usage_and_cost() -> None:
    """Text, model, reason to stop, tokens and money by the price table."""
    script = Script(ok())
    completion = await provider_of(script, "openai/gpt-4o-mini").complete(ASK, max_tokens=7)
    assert (completion.text, completion.model, completion.finish_reason) == ("hi", "m-1", "stop")
    assert completion.usage == Usage(
        calls=1, input_tokens=10, output_tokens=5, cost_usd=pytest.approx(4.5e-6)
    )
    assert script.bodies == [
        {
            "model": "gpt-4o-mini",
            "messages": [{"role": "user", "content": "words-of-the-user"}],
            "max_completion_tokens": 7,
        }
    ]


async def test_a_cost_the_endpoint_reports_is_taken() -> None:
    """It knows better than our table."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.25}
    completion = await provider_of(Script(ok(usage=usage)), "x-ai/grok-4-fast").complete(ASK)
    assert completion.usage.cost_usd == 0.25


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": "many"}, 7])
async def test_an_unreadable_count_does_not_lose_the_answer(usage: object) -> None:
    """The call is counted, with no tokens."""
    completion = await provider_of(Script(ok(usage=usage))).complete(ASK)
    assert (completion.text, completion.usage) == ("hi", Usage(calls=1, unpriced_calls=1))


async def test_usage_adds_up_over_calls_and_streams() -> None:
    """One provider, one sum."""
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    streamed = stream_of(event(said("a", finish_reason="stop")), event(usage), event("[DONE]"))
    provider = provider_of(Script(ok(), streamed))
    await provider.complete(ASK)
    assert await collect(provider) == ["a"]
    assert provider.usage == Usage(  # type: ignore[attr-defined]
        calls=2, input_tokens=13, output_tokens=7, unpriced_calls=2
    )


async def test_options_are_sent_and_tool_results_go_as_labelled_user_messages() -> None:
    """Endpoints refuse the role tool outside of a call of their own."""
    script = Script(ok())
    messages = [
        Message(role=Role.SYSTEM, content="s"),
        Message(role=Role.TOOL, content="found"),
        Message(role=Role.ASSISTANT, content="a"),
    ]
    await provider_of(script, temperature=0).complete(messages)
    body = script.bodies[0]
    assert body["temperature"] == 0
    assert body["messages"] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "[tool result]\nfound"},
        {"role": "assistant", "content": "a"},
    ]


async def test_broken_unicode_is_sent_as_question_marks() -> None:
    """A lone surrogate has no UTF-8 form and must not stop the call."""
    script = Script(ok())
    await provider_of(script).complete([Message(role=Role.USER, content="a\ud800b é")])
    assert script.bodies[0]["messages"] == [{"role": "user", "content": "a?b é"}]


async def test_a_schema_is_asked_for_and_dropped_for_good_where_refused() -> None:
    """One refusal is enough: the next call does not ask again."""
    script = Script(ok(), httpx.Response(400), ok(), ok())
    provider = provider_of(script)
    for _ in range(3):
        await provider.complete(ASK, schema=SCHEMA)
    asked = ["response_format" in body for body in script.bodies]
    assert asked == [True, True, False, False]
    form = script.bodies[0]["response_format"]
    assert form == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA},
    }


async def test_a_request_refused_for_another_reason_stays_refused() -> None:
    """The schema is not blamed when the request fails without it as well."""
    script = Script(httpx.Response(400), httpx.Response(400, content=b"too long"), ok())
    provider = provider_of(script)
    with pytest.raises(ProviderRejected, match="status 400") as caught:
        await provider.complete(ASK, schema=SCHEMA)
    assert caught.value.body == b"too long"
    await provider.complete(ASK, schema=SCHEMA)
    assert "response_format" in script.bodies[2]


@pytest.mark.parametrize(
    ("model", "status", "advice"),
    [
        ("openai/m", 401, "check the key in OPENAI_API_KEY"),
        ("box/m", 403, "check the key in BOX_API_KEY"),
        ("http://test/v1#m", 401, "it wants a key"),
        ("openrouter/m/x", 402, "add credit"),
        ("ollama/m", 404, "ollama pull"),
        ("box/m", 413, "too large"),
        ("box/m", 429, "fewer requests"),
        ("box/m", 500, "trouble of its own"),
        ("box/m", 302, "not followed"),
        ("box/m", 418, "check the model's name"),
    ],
)
async def test_a_refusal_says_what_to_do(model: str, status: int, advice: str) -> None:
    """Status, body and wait are kept; neither the question nor the answer is quoted."""
    headers = {"retry-after": "60"}
    script = Script(httpx.Response(status, content=b"words-of-the-user", headers=headers))
    with pytest.raises(ProviderRejected, match=advice) as caught:
        await provider_of(script, model).complete(ASK)
    assert (caught.value.status, caught.value.retry_after_s) == (status, 60)
    assert caught.value.body == b"words-of-the-user"
    assert "words-of" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>words-of-the-user</html>",
        b"[]",
        b'"text"',
        b'{"choices": []}',
        b'{"choices": 7}',
        b'{"choices": [{"message": {"content": 7}}]}',
        b'{"choices": [{"message": {"content": [7]}}]}',
        b"\xff\xfe",
    ],
)
async def test_something_else_than_an_answer_is_an_error(content: bytes) -> None:
    """It never becomes an empty answer, and it is not quoted."""
    with pytest.raises(ProviderError, match="not a chat completion") as caught:
        await provider_of(Script(httpx.Response(200, content=content))).complete(ASK)
    assert "words-of" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": {"code": 429, "message": "words-of-the-user"}}, 429),
        ({"error": "words-of-the-user"}, 502),
        (answer(error={"code": "odd"}), 502),
        ({"choices": [{"message": {"content": ""}, "finish_reason": "error"}]}, 502),
    ],
)
async def test_an_error_inside_a_success_is_an_error(body: object, status: int) -> None:
    """Some endpoints send status 200 first and fail afterwards."""
    with pytest.raises(ProviderRejected) as caught:
        await provider_of(Script(httpx.Response(200, json=body))).complete(ASK)
    assert caught.value.status == status
    assert "words-of" not in str(caught.value)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None, "refusal": "I will not."}, "I will not."),
        ({"content": None, "tool_calls": []}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": "x", "reasoning_content": "thinking"}, "x"),
    ],
)
async def test_other_forms_of_answers_are_read(message: object, text: str) -> None:
    """Refusals, parts and reasoning."""
    body = {"choices": [{"message": message, "finish_reason": None}]}
    completion = await provider_of(Script(httpx.Response(200, json=body))).complete(ASK)
    assert (completion.text, completion.finish_reason, completion.model) == (text, "stop", "m")


async def test_a_stream_is_given_piece_by_piece() -> None:
    """Empty pieces and comments are left out."""
    script = Script(
        stream_of(
            b": waiting\r\n\r\n",
            event({"choices": [{"delta": {"role": "assistant"}}]}),
            event(said("Hel")),
            event(said("")),
            event(said("lo", finish_reason="stop")),
            event("[DONE]"),
        )
    )
    assert await collect(provider_of(script)) == ["Hel", "lo"]
    assert script.bodies[0]["stream"] is True
    assert script.requests[0].headers["accept-encoding"] == "identity"


async def test_a_missing_done_is_tolerated_after_the_last_word() -> None:
    """The reason to stop says that the model had finished."""
    script = Script(stream_of(event(said("all", finish_reason="length"))))
    assert await collect(provider_of(script)) == ["all"]


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ((event(said("half")),), "before it was complete"),
        ((), "before it was complete"),
        ((b"<html>words-of-the-user</html>",), "before it was complete"),
        ((event(said("half")), event("words-of-the-user")), "not a chat completion"),
        ((event(said("half")), event({"error": {"code": 503}})), "status 503"),
    ],
)
async def test_a_stream_never_ends_silently(events: tuple[bytes, ...], kind: str) -> None:
    """Cut, empty, foreign, garbled and failing streams raise."""
    with pytest.raises(ProviderError, match=kind) as caught:
        await collect(provider_of(Script(stream_of(*events))))
    assert "words-of" not in str(caught.value)


@pytest.mark.parametrize("is_finished", [False, True])
async def test_a_connection_cut_in_mid_stream(is_finished: bool) -> None:
    """Before the last word it is an error, after it only the token count is lost."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        last = {"finish_reason": "stop"} if is_finished else {}
        writer.write(SSE_HEAD + chunk(event(said("so far", **last))))
        await writer.drain()

    async with serving(cut) as url:
        provider = open_provider("box/m", local(url, retries=0))
        seen = []
        try:
            async for piece in provider.stream(ASK):
                seen.append(piece)  # noqa: PERF401 - what came before the error counts
        except ProviderError:
            assert not is_finished
        else:
            assert is_finished
        assert seen == ["so far"]
        await provider.close()


async def test_a_refused_stream_is_an_error_with_its_body() -> None:
    """The body of an error is read even though a stream was asked for."""
    script = Script(httpx.Response(401, content=b"no"))
    with pytest.raises(ProviderRejected, match="key") as caught:
        await collect(provider_of(script))
    assert caught.value.body == b"no"


async def test_token_counts_in_streams_are_dropped_for_good_where_refused() -> None:
    """An endpoint that does not know stream_options is asked without."""
    streamed = [stream_of(event(said("a", finish_reason="stop"))) for _ in range(2)]
    script = Script(httpx.Response(422), *streamed)
    provider = provider_of(script)
    assert await collect(provider) == ["a"]
    assert await collect(provider) == ["a"]
    assert ["stream_options" in body for body in script.bodies] == [True, False, False]


async def test_leaving_a_stream_closes_the_connection() -> None:
    """A reader that stops reading stops the upstream as well."""
    gone = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + chunk(event(said("first"))))
        await reader.read()
        gone.set()

    async with serving(talk) as url:
        provider = open_provider("box/m", local(url))
        stream = provider.stream(ASK)
        assert await anext(stream) == "first"
        await stream.aclose()  # type: ignore[attr-defined]
        await asyncio.wait_for(gone.wait(), 10)
        await provider.close()
