"""What every provider promises, asked of each one."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from promptguard.conversation import Message, Role
from promptguard.errors import ProviderError
from promptguard.protocols import Provider
from promptguard.providers import EndpointSeams, open_provider
from promptguard.testing import ManualClock, ScriptedProvider

ASK = (Message(role=Role.USER, content="a question"),)
MakeProvider = Callable[..., Provider]


def scripted(*answers: str | None) -> Provider:
    return ScriptedProvider(*(ProviderError("down") if a is None else a for a in answers))


def over_http(*answers: str | None) -> Provider:
    """Serve each answer in the form that was asked for; None is a server that fails."""
    remaining = list(answers)

    def respond(request: httpx.Request) -> httpx.Response:
        text = remaining.pop(0)
        if text is None:
            return httpx.Response(404)
        if not json.loads(request.content).get("stream"):
            return httpx.Response(200, json={"choices": [{"message": {"content": text}}]})
        events = [{"choices": [{"delta": {"content": word + " "}}]} for word in text.split()]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        return httpx.Response(200, content=body + "data: [DONE]\n\n")

    clock = ManualClock()
    seams = EndpointSeams(
        env={}, transport=httpx.MockTransport(respond), clock=clock, sleep=clock.sleep
    )
    return open_provider("ollama/model", seams=seams)


@pytest.fixture(params=[scripted, over_http])
def make(request: pytest.FixtureRequest) -> MakeProvider:
    return request.param


async def test_an_answer_comes_with_its_text_and_one_call(make: MakeProvider) -> None:
    """Whatever else is known, the call is counted."""
    completion = await make("the answer").complete(ASK, schema={"type": "object"}, max_tokens=9)
    assert completion.text == "the answer"
    assert completion.usage.calls == 1
    assert completion.finish_reason


async def test_the_pieces_of_a_stream_are_the_answer(make: MakeProvider) -> None:
    """Joined together they are what was said."""
    pieces = [piece async for piece in make("one two three").stream(ASK)]
    assert len(pieces) > 1
    assert "".join(pieces).split() == ["one", "two", "three"]


async def test_a_failure_is_a_provider_error(make: MakeProvider) -> None:
    """In both ways of asking, and the next call may succeed."""
    provider = make(None, None, "fine")
    with pytest.raises(ProviderError):
        await provider.complete(ASK)
    with pytest.raises(ProviderError):
        await anext(provider.stream(ASK))
    assert (await provider.complete(ASK)).text == "fine"


async def test_closing_twice_is_harmless(make: MakeProvider) -> None:
    """And a provider that was never used can be closed."""
    provider = make()
    assert provider.name
    await provider.close()
    await provider.close()
