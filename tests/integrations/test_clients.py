"""The official clients, unchanged, against the service as it is shipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("anthropic", reason="pinned in requirements/integrations.txt")

import anthropic
import openai
from conftest import Gateway
from spoken import ATTACK, HARMLESS

REFUSAL = "I'm sorry, but I can't assist with that."


@pytest.fixture
def claude(gateway: Gateway) -> Iterator[anthropic.Anthropic]:
    url = gateway.url.removesuffix("/v1")
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=gateway.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize(("text", "answer"), [(HARMLESS, "It is sunny."), (ATTACK, REFUSAL)])
def test_anthropics_messages(
    gateway: Gateway, claude: anthropic.Anthropic, text: str, answer: str
) -> None:
    """A question is answered and an attack refused, whole and streamed."""
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}
    gateway.upstream.answers("It is sunny.", "It is sunny.")
    assert claude.messages.create(**asked).content[0].text == answer
    with claude.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == answer


@pytest.mark.parametrize(("text", "answer"), [(HARMLESS, "It is sunny."), (ATTACK, REFUSAL)])
def test_openais_responses(gateway: Gateway, client: openai.OpenAI, text: str, answer: str) -> None:
    """Likewise, by the Responses interface."""
    gateway.upstream.answers("It is sunny.", "It is sunny.")
    assert client.responses.create(model="m", input=text).output_text == answer
    with client.responses.stream(model="m", input=text) as stream:
        said = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(said) == answer


@pytest.mark.parametrize(("text", "answer"), [(HARMLESS, "It is sunny."), (ATTACK, REFUSAL)])
def test_openais_chat(gateway: Gateway, client: openai.OpenAI, text: str, answer: str) -> None:
    """Likewise, by chat completions."""
    gateway.upstream.answers("It is sunny.")
    asked = [{"role": "user", "content": text}]
    done = client.chat.completions.create(model="m", messages=asked)
    assert done.choices[0].message.content == answer
