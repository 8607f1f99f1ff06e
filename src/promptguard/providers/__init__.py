"""Upstream language models."""

from promptguard.providers.endpoint import Endpoint, EndpointSeams, open_endpoint
from promptguard.providers.openai_compatible import open_provider
from promptguard.providers.registry import PROVIDERS, ProviderRow
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
