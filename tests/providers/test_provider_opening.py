"""From a model's name to a provider, and what providers share."""

from __future__ import annotations

import gc
import weakref

import pytest

from promptguard.config import EndpointConfig
from promptguard.errors import ConfigError
from promptguard.providers import open_endpoint, open_provider
from promptguard.providers.openai_compatible import OpenAICompatibleProvider


def endpoint_of(model: str, config: EndpointConfig | None = None) -> object:
    provider = open_provider(model, config)
    assert isinstance(provider, OpenAICompatibleProvider)
    return provider._endpoint


def test_a_provider_is_called_what_it_was_called() -> None:
    """Its name is the configured one."""
    assert open_provider("x-ai/grok-4-fast:free").name == "x-ai/grok-4-fast:free"


def test_an_unknown_name_is_a_configuration_error() -> None:
    """Opening checks the name."""
    with pytest.raises(ConfigError, match="names no model"):
        open_provider("gpt-4o")


def test_models_at_one_endpoint_share_it() -> None:
    """One client and one breaker per endpoint and configuration."""
    first = endpoint_of("ollama/a")
    assert endpoint_of("ollama/b") is first
    assert open_endpoint("ollama") is first
    assert endpoint_of("vllm/a") is not first
    assert endpoint_of("ollama/a", EndpointConfig(timeout_s=1)) is not first
    moved = EndpointConfig(base_urls={"ollama": "http://other/v1"})
    assert endpoint_of("ollama/a", moved) is not first


async def test_a_shared_endpoint_stays_open_for_the_others() -> None:
    """It closes with its last user, however often one of them closes."""
    first, second = open_provider("ollama/a"), open_provider("ollama/b")
    assert isinstance(first, OpenAICompatibleProvider)
    endpoint = first._endpoint
    client = endpoint._client()
    await first.close()
    await first.close()
    assert not client.is_closed
    await second.close()
    assert client.is_closed


def test_an_endpoint_nobody_uses_is_forgotten() -> None:
    """Sharing keeps nothing alive."""
    endpoint = weakref.ref(endpoint_of("llamacpp/a"))
    gc.collect()
    assert endpoint() is None
