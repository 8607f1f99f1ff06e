"""Upstream language models."""

from promptguard.providers.endpoint import Endpoint, EndpointSeams
from promptguard.providers.factory import check_target, open_endpoint, open_provider
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
