"""What calls cost: every attempt counted, unknown prices marked, errors inside a success."""

from __future__ import annotations

import json

import httpx
import pytest
from loopback import Script, answer, local, seams_of

from promptguard.config import EndpointConfig
from promptguard.conversation import Message, Role
from promptguard.errors import ProviderError, ProviderRejected
from promptguard.providers import open_provider
from promptguard.providers.openai_compatible import OpenAICompatibleProvider
from promptguard.usage import Usage, cost_text

ASK = (Message(role=Role.USER, content="words"),)
PRICES = {"box/m": {"input": 1.0, "output": 2.0}}
SCHEMA = {"type": "object"}


def priced(script: Script, config: EndpointConfig | None = None) -> OpenAICompatibleProvider:
    provider = open_provider("box/m", config or local(prices=PRICES), seams=seams_of(script))
    assert isinstance(provider, OpenAICompatibleProvider)
    return provider


def ok(**more: object) -> httpx.Response:
    return httpx.Response(200, json=answer(**more))


def inside(code: object, **more: object) -> httpx.Response:
    return httpx.Response(200, json={"error": {"code": code, "message": "m"}, **more})


async def test_a_configured_price_counts() -> None:
    """Ten tokens in, five out."""
    completion = await priced(Script(ok())).complete(ASK)
    assert completion.usage.cost_usd == pytest.approx((10 * 1.0 + 5 * 2.0) / 1e6)
    assert completion.usage.is_cost_known


async def test_a_model_without_a_price_is_unpriced() -> None:
    """Its tokens are counted, its cost is unknown and not zero."""
    provider = priced(Script(ok()), local())
    assert not provider.is_price_known
    usage = (await provider.complete(ASK)).usage
    assert (usage.input_tokens, usage.unpriced_calls, usage.is_cost_known) == (10, 1, False)


async def test_an_endpoint_that_should_tell_its_cost_and_does_not_is_unpriced_from_then_on() -> (
    None
):
    """OpenRouter reports the cost of a call; a model that is in no table relies on it."""
    told = {"prompt_tokens": 1, "completion_tokens": 1, "cost": 0.5}
    env = {"OPENROUTER_API_KEY": "k"}
    script = Script(ok(usage=told), ok())
    provider = open_provider("vendor/new-model", seams=seams_of(script, env=env))
    assert isinstance(provider, OpenAICompatibleProvider)
    assert provider.is_price_known
    assert (await provider.complete(ASK)).usage.cost_usd == 0.5
    assert provider.is_price_known
    await provider.complete(ASK)
    assert not provider.is_price_known


@pytest.mark.parametrize("code", [429, 503])
async def test_an_error_inside_a_success_is_retried_like_its_status(code: int) -> None:
    """The answer that follows counts both calls."""
    script = Script(inside(code), ok())
    completion = await priced(script).complete(ASK)
    assert (completion.text, completion.usage.calls, len(script.requests)) == ("hi", 2, 2)


@pytest.mark.parametrize("code", [400, 401, 403])
async def test_an_error_inside_a_success_that_no_retry_mends_is_raised_at_once(code: int) -> None:
    """With its status."""
    script = Script(inside(code))
    with pytest.raises(ProviderRejected) as caught:
        await priced(script).complete(ASK)
    assert (caught.value.status, len(script.requests)) == (code, 1)


async def test_errors_inside_successes_open_the_circuit() -> None:
    """An endpoint that fails behind status 200 is left alone as well."""
    config = local(prices=PRICES, retries=0, breaker_failures=2)
    provider = priced(Script(inside(502), inside(502)), config)
    for _ in range(2):
        with pytest.raises(ProviderRejected):
            await provider.complete(ASK)
    with pytest.raises(ProviderError, match="left alone") as caught:
        await provider.complete(ASK)
    assert caught.value.usage == Usage()


async def test_retries_are_counted_with_the_answer() -> None:
    """Three calls were made."""
    script = Script(httpx.Response(503), httpx.Response(429), ok())
    provider = priced(script)
    assert (await provider.complete(ASK)).usage.calls == 3
    assert provider.usage.calls == 3


async def test_a_call_that_fails_for_good_carries_every_attempt() -> None:
    """On the error and in the provider's sum."""
    provider = priced(Script(*[httpx.Response(500)] * 3))
    with pytest.raises(ProviderRejected) as caught:
        await provider.complete(ASK)
    assert caught.value.usage == provider.usage == Usage(calls=3)


@pytest.mark.parametrize(
    "usage",
    [{"cost": -5.0}, {"cost": float("nan")}, {"prompt_tokens": 10**400}, {"prompt_tokens": -1}],
)
async def test_a_count_that_can_not_be_is_a_cost_unknown(usage: dict[str, float]) -> None:
    """Else one answer could lower what was spent, or make it no number, against which no budget
    holds."""
    content = json.dumps(answer(usage=usage)).encode()
    counted = (await priced(Script(httpx.Response(200, content=content))).complete(ASK)).usage
    assert counted == Usage(calls=1, unpriced_calls=1)


async def test_a_timeout_may_have_been_billed() -> None:
    """It is a call of unknown cost, unless the model is free."""
    slow = httpx.ReadTimeout("slow")
    provider = priced(Script(slow, slow, ok()))
    usage = (await provider.complete(ASK)).usage
    assert (usage.calls, usage.unpriced_calls) == (3, 2)
    assert usage.cost_usd > 0
    local_model = open_provider("ollama/m", seams=seams_of(Script(slow, ok())))
    assert (await local_model.complete(ASK)).usage.is_cost_known


@pytest.mark.parametrize(
    "body", [b"no json", b'{"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}']
)
async def test_an_answer_that_cannot_be_read_is_counted(body: bytes) -> None:
    """By its tokens where it tells them, else as a call of unknown cost."""
    provider = priced(Script(httpx.Response(200, content=body)))
    with pytest.raises(ProviderError) as caught:
        await provider.complete(ASK)
    usage = caught.value.usage
    assert usage.calls == 1
    assert usage.is_cost_known == (usage.input_tokens == 10)
    assert (usage.cost_usd > 0) == usage.is_cost_known


async def test_an_answer_that_is_not_taken_is_counted() -> None:
    """It may have been billed, and so may the attempts before it."""
    odd = httpx.Response(200, content=b"x", headers={"content-encoding": "br"})
    provider = priced(Script(httpx.Response(503), odd))
    with pytest.raises(ProviderError, match="compression") as caught:
        await provider.complete(ASK)
    assert caught.value.usage == provider.usage == Usage(calls=2, unpriced_calls=1)


async def test_a_refused_schema_is_a_call_too() -> None:
    """The question is asked again without it."""
    completion = await priced(Script(httpx.Response(400), ok())).complete(ASK, schema=SCHEMA)
    assert completion.usage.calls == 2


async def test_failed_streams_are_counted() -> None:
    """Attempts that brought no stream, and the one that was refused."""
    provider = priced(Script(httpx.Response(503), httpx.Response(403)))
    with pytest.raises(ProviderRejected):
        _ = [piece async for piece in provider.stream(ASK)]
    assert provider.usage == Usage(calls=2)


def test_usages_add_up_and_keep_what_is_not_known() -> None:
    """One call of unknown cost makes the sum a lower bound."""
    known = Usage(calls=2, cost_usd=0.5)
    unknown = Usage(calls=1, unpriced_calls=1)
    assert cost_text(known) == "$0.5000"
    assert cost_text(unknown) == "cost unknown"
    assert cost_text(known + unknown) == "$0.5000 and 1 call of unknown cost"
    assert not (known + unknown).is_cost_known
