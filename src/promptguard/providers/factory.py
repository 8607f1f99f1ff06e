"""Makes providers and endpoints from their names; an endpoint is opened once and shared."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from weakref import WeakValueDictionary

from promptguard.config import EndpointConfig
from promptguard.protocols import Provider
from promptguard.providers.endpoint import Endpoint, EndpointSeams, provider_key
from promptguard.providers.openai_compatible import OpenAICompatibleProvider
from promptguard.providers.pricing import Price, shipped_prices
from promptguard.providers.registry import ProviderRow, Target, provider_of, target_of

# Weak, so that sharing keeps no endpoint open after its last user has gone.
_shared: WeakValueDictionary[tuple[object, ...], Endpoint] = WeakValueDictionary()
_lock = threading.Lock()


def open_provider(
    model: str,
    config: EndpointConfig | None = None,
    *,
    options: Mapping[str, object] | None = None,
    seams: EndpointSeams | None = None,
) -> Provider:
    """Return the model called `model`; nothing is sent before its first use.

    Models at one endpoint share connections and circuit breaker as long as they are open.
    Raises ConfigError where the name means nothing; a missing key shows at first use.
    """
    config = config or EndpointConfig()
    target = target_of(model, config.base_urls)
    return OpenAICompatibleProvider(
        shared_endpoint(target.provider, config, seams),
        target.model,
        name=model,
        price=_price(model, target, config),
        options=options,
    )


def check_target(model: str, config: EndpointConfig, *, env: Mapping[str, str]) -> None:
    """Raise ConfigError where `model` cannot be called: an unknown name, or a missing key."""
    # The probe asks this first: a run without a key must not leave a folder behind.
    provider_key(target_of(model, config.base_urls).provider, env)


def _price(model: str, target: Target, config: EndpointConfig) -> Price | None:
    # By the configured name: the same model may cost something else at another address.
    own = config.prices.get(model)
    if own is not None:
        return Price(input=own.input, output=own.output)
    return shipped_prices().price_of(target)


def open_endpoint(
    upstream: str,
    config: EndpointConfig | None = None,
    *,
    key_env: str | None = None,
    seams: EndpointSeams | None = None,
) -> Endpoint:
    """Return the endpoint that a provider's name or a base URL means.

    `key_env` names the variable that holds its key, which then must be set.
    """
    config = config or EndpointConfig()
    provider = provider_of(upstream, config.base_urls)
    if key_env is not None:
        provider = replace(provider, key_env=key_env, needs_key=True)
    return shared_endpoint(provider, config, seams)


def shared_endpoint(
    provider: ProviderRow, config: EndpointConfig, seams: EndpointSeams | None = None
) -> Endpoint:
    """Return the one open endpoint with these settings; with `seams` always a new one."""
    if seams is not None:
        return Endpoint(provider, config, seams)
    # Addresses and prices of other models must not keep two users of one endpoint apart.
    key = (provider, *config.model_dump(exclude={"base_urls", "prices"}).values())
    with _lock:
        endpoint = _shared.get(key)
        if endpoint is not None:
            return endpoint.share()
        endpoint = _shared[key] = Endpoint(provider, config)
        return endpoint
