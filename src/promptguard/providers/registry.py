"""What a model's name means: which endpoint, which model there, and which key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import httpx

from promptguard.errors import ConfigError
from promptguard.registry import Registry

DEFAULT_PROVIDER = "openrouter"
_USER_INFO = re.compile(r"//\S*@")
_QUERY = re.compile(r"(\w+://[^\s?#]*)[?#]\S*")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRow:
    """One kind of endpoint.

    `key_env` names the environment variable of its key; without `needs_key` it is used only
    where it is set. `reports_cost` says that answers carry what they cost. `advice` says what
    to do when nobody answers.
    """

    name: str
    base_url: str
    key_env: str | None = None
    needs_key: bool = False
    is_free: bool = False
    reports_cost: bool = False
    max_tokens_field: str = "max_tokens"
    advice: str = "check the address and the network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A model at an endpoint."""

    provider: ProviderRow
    model: str


PROVIDERS: Registry[ProviderRow] = Registry("provider")
for _row in (
    ProviderRow(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        key_env="OPENROUTER_API_KEY",
        needs_key=True,
        reports_cost=True,
    ),
    ProviderRow(
        name="openai",
        base_url="https://api.openai.com/v1",
        key_env="OPENAI_API_KEY",
        needs_key=True,
        # OpenAI refuses `max_tokens` for its reasoning models.
        max_tokens_field="max_completion_tokens",
    ),
    ProviderRow(
        name="ollama",
        base_url="http://localhost:11434/v1",
        is_free=True,
        advice="start Ollama with `ollama serve` and fetch the model with `ollama pull MODEL`",
    ),
    ProviderRow(
        name="vllm",
        base_url="http://localhost:8000/v1",
        key_env="VLLM_API_KEY",
        is_free=True,
        advice="start vLLM with `vllm serve MODEL`",
    ),
    ProviderRow(
        name="llamacpp",
        base_url="http://localhost:8080/v1",
        key_env="LLAMA_API_KEY",
        is_free=True,
        advice="start llama.cpp with `llama-server -m MODEL.gguf`",
    ),
):
    PROVIDERS.register(_row.name)(_row)


def target_of(name: str, base_urls: Mapping[str, str]) -> Target:
    """Return what `name` means: `provider/model`, `URL#model`, or OpenRouter's `vendor/model`.

    `base_urls` moves a known provider or adds one. Raises ConfigError where it means nothing.
    """
    if _is_url(name):
        address, _, model = name.partition("#")
        provider = provider_of(address, base_urls)
    else:
        prefix, _, model = name.partition("/")
        is_known = prefix in base_urls or prefix in PROVIDERS
        provider = provider_of(prefix if is_known else DEFAULT_PROVIDER, base_urls)
        if not is_known:
            # A name with an unknown prefix is OpenRouter's `vendor/model`, and stands there as a
            # whole.
            model = name if prefix.strip() and model.strip() else ""
    if not model.strip():
        raise ConfigError(
            f"{without_credentials(name)!r} names no model; write provider/model (such as "
            "ollama/llama3.2), vendor/model for OpenRouter, or http://HOST:PORT/v1#model."
        )
    return Target(provider=provider, model=model)


def provider_of(name: str, base_urls: Mapping[str, str]) -> ProviderRow:
    """Return the endpoint called `name`, or the one at `name` where that is a URL."""
    if _is_url(name):
        address = _checked(name)
        parts = urlsplit(address)
        return ProviderRow(
            # The name appears in errors and traces; a password in the address must not.
            name=parts.netloc.rpartition("@")[2],
            base_url=address,
            # A server on this machine bills nobody.
            is_free=parts.hostname in _LOOPBACK,
        )
    if name not in base_urls:
        return PROVIDERS.get(name)
    address = _checked(base_urls[name])
    if name in PROVIDERS:
        return replace(PROVIDERS.get(name), base_url=address)
    return ProviderRow(
        name=name, base_url=address, key_env=re.sub(r"\W", "_", name).upper() + "_API_KEY"
    )


def _is_url(name: str) -> bool:
    return name.lower().startswith(("http://", "https://"))


def _checked(address: str) -> str:
    try:
        parts = urlsplit(address)
        httpx.URL(address)  # what will call it refuses more
        # Reading the port raises ValueError where it is no number.
        is_usable = _is_url(address) and bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        is_usable = False
    # A path is appended to the address, which would end up in a query or fragment.
    if not is_usable or parts.query or parts.fragment:
        raise ConfigError(
            f"{without_credentials(address)!r} is not the base URL of an endpoint; write http://HOST:PORT/v1."
        )
    return address.rstrip("/")


def without_credentials(text: str) -> str:
    """Return `text` without the user names, passwords and queries of the URLs in it."""
    return _QUERY.sub(r"\1", _USER_INFO.sub("//", text))
