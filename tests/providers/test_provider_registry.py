"""What a model's name means."""

from __future__ import annotations

import pytest

from promptguard.errors import ConfigError
from promptguard.providers.registry import provider_of, target_of


@pytest.mark.parametrize(
    ("name", "provider", "base_url", "model"),
    [
        (
            "openrouter/x-ai/grok-4-fast:free",
            "openrouter",
            "https://openrouter.ai/api/v1",
            "x-ai/grok-4-fast:free",
        ),
        (
            "x-ai/grok-4-fast:free",
            "openrouter",
            "https://openrouter.ai/api/v1",
            "x-ai/grok-4-fast:free",
        ),
        ("ollama/llama3.2", "ollama", "http://localhost:11434/v1", "llama3.2"),
        ("ollama/hf.co/org/model:Q4", "ollama", "http://localhost:11434/v1", "hf.co/org/model:Q4"),
        ("openai/gpt-4o-mini", "openai", "https://api.openai.com/v1", "gpt-4o-mini"),
        ("vllm/org/model", "vllm", "http://localhost:8000/v1", "org/model"),
        ("llamacpp/any", "llamacpp", "http://localhost:8080/v1", "any"),
        ("http://host:9/v1#a/b", "host:9", "http://host:9/v1", "a/b"),
        ("https://me:pw@host/v1/#m", "host", "https://me:pw@host/v1", "m"),
    ],
)
def test_names_are_resolved(name: str, provider: str, base_url: str, model: str) -> None:
    """Known prefixes choose the endpoint, anything else with a slash is OpenRouter's."""
    target = target_of(name, {})
    assert (target.provider.name, target.provider.base_url) == (provider, base_url)
    assert target.model == model


def test_configuration_moves_and_adds_endpoints() -> None:
    """A known provider keeps its key at another address; a new one gets a variable of its own."""
    base_urls = {"openai": "http://proxy/v1/", "my-box": "http://box:1/v1"}
    moved = target_of("openai/gpt-x", base_urls).provider
    assert (moved.base_url, moved.key_env, moved.needs_key) == (
        "http://proxy/v1",
        "OPENAI_API_KEY",
        True,
    )
    added = target_of("my-box/m", base_urls).provider
    assert (added.base_url, added.key_env, added.needs_key) == (
        "http://box:1/v1",
        "MY_BOX_API_KEY",
        False,
    )


@pytest.mark.parametrize(
    "name", ["", "gpt-4o", "ollama/", "ollama", "http://host/v1", "http://host/v1#", " / "]
)
def test_a_name_without_a_model_is_a_configuration_error(name: str) -> None:
    """The error shows the forms that are understood."""
    with pytest.raises(ConfigError, match=r"names no model; write provider/model"):
        target_of(name, {})


@pytest.mark.parametrize(
    "address",
    [
        *("ftp://host/v1", "http://", "http://host:port/v1", "host/v1", "http://host/v1?key=x", ""),
        *("http://host:1/v1\0", "http://\u2024/v1"),
    ],
)
def test_a_bad_address_is_a_configuration_error(address: str) -> None:
    """An address in the configuration is checked before it is used."""
    with pytest.raises(ConfigError, match="not the base URL"):
        target_of("box/m", {"box": address})


@pytest.mark.parametrize(
    "address",
    ["http://me:hunter2@host:port/v1", "http://me:hun/ter2@host", "http://host/v1?key=hunter2"],
)
def test_a_password_in_an_address_is_not_shown(address: str) -> None:
    """Whatever characters it has, and also where it is a part of the query."""
    with pytest.raises(ConfigError) as caught:
        target_of(f"{address}#m", {})
    assert "ter2" not in str(caught.value)


def test_an_endpoint_can_be_named_alone() -> None:
    """The gateway names a provider or an address without a model; unknown names are listed."""
    assert provider_of("ollama", {}).base_url == "http://localhost:11434/v1"
    assert provider_of("http://box:1/v1", {}).name == "box:1"
    with pytest.raises(ConfigError, match=r"known: .*ollama"):
        provider_of("nonsense", {})
