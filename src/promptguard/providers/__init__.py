"""Upstream language models."""

from promptguard.providers.endpoint import Endpoint, EndpointSeams, open_endpoint
from promptguard.providers.openai_compatible import check_target, open_provider
from promptguard.providers.registry import PROVIDERS, ProviderRow
from promptguard.providers.sse import SseParser

__all__ = [
    "PROVIDERS",
    "Endpoint",
    "EndpointSeams",
    "ProviderRow",
    "SseParser",
    "check_target",
    "open_endpoint",
    "open_provider",
]
