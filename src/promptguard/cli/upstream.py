"""Whether the language model behind the gateway can be reached, for `promptguard doctor`."""

from __future__ import annotations

import asyncio
import os

import httpx

from promptguard.config import Settings
from promptguard.counts import counted
from promptguard.errors import ConfigError, ProviderError
from promptguard.providers import Endpoint, ProviderRow, open_endpoint
from promptguard.providers.faults import rejected

TIMEOUT_S = 5.0
_KEY_ADVICE = "name the variable that holds it in service.upstream_key_env"


def examine_upstream(settings: Settings) -> str:
    """Return what is well with the upstream, or raise what is not; its key is never shown.

    Only its list of models is asked for, which costs nothing. A key may also come from the
    clients, which cannot be tried here.
    """
    service = settings.service
    # A person waits for the answer and can ask again.
    config = settings.conversation.endpoint.model_copy(
        update={"timeout_s": TIMEOUT_S, "retries": 0}
    )
    endpoint = open_endpoint(service.upstream, config, key_env=service.upstream_key_env)
    provider = endpoint.provider
    has_key = bool(provider.key_env and os.environ.get(provider.key_env))
    # Whether the gateway would pass on the clients' keys, having none and needing none.
    needs_theirs = not (has_key or service.keys or service.upstream_key_env)
    if needs_theirs and provider.needs_key:
        return f"{provider.name}, not called: set {provider.key_env}, or clients send their own key"
    response = asyncio.run(_models(endpoint))
    if needs_theirs and response.status_code == 401:
        return f"{provider.name} answers and wants a key: {_KEY_ADVICE}, or clients send their own"
    return f"{provider.name} answers, {_counted(response, provider)}"


async def _models(endpoint: Endpoint) -> httpx.Response:
    try:
        return await endpoint.send("GET", "/models")
    finally:
        await endpoint.close()


def _counted(response: httpx.Response, provider: ProviderRow) -> str:
    """Return how many models are offered; raises where the answer is no list of models."""
    status = response.status_code
    if status in (401, 403) and provider.key_env is None:
        raise ConfigError(f"{provider.name} wants a key (status {status}): {_KEY_ADVICE}.")
    if status in (404, 405):
        raise _incompatible(provider, f"has no list of models (status {status})")
    if not response.is_success:
        raise rejected(provider, status)
    try:
        body = response.json()
    except (ValueError, RecursionError):
        raise _incompatible(provider, "does not answer in JSON") from None
    # Some answer with the bare list, and Ollama with null while it has no model.
    models = body.get("data", "") if isinstance(body, dict) else body
    if not isinstance(models, list | None):
        raise _incompatible(provider, "answers with something that is not a list of models")
    return f"{counted(len(models or ()), 'model')} offered"


def _incompatible(provider: ProviderRow, what: str) -> ProviderError:
    return ProviderError(
        f"{provider.name} {what}, so it is not OpenAI-compatible there; check that the base URL "
        "in service.upstream ends where its API begins, usually in /v1.",
        provider=provider.name,
    )
