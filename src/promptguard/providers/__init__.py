"""Upstream language models."""

from promptguard.providers.endpoint import Endpoint, EndpointSeams
from promptguard.providers.names import PROVIDERS, ProviderRow
from promptguard.providers.opening import open_endpoint, open_provider
from promptguard.providers.sse import SseParser

__all__ = [
    "PROVIDERS",
    "Endpoint",
    "EndpointSeams",
    "ProviderRow",
    "SseParser",
    "open_endpoint",
    "open_provider",
]
