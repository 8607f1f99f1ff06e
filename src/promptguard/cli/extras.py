"""What a command says when its extra is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from promptguard.errors import ConfigError

_SERVICE = {"fastapi", "starlette", "uvicorn", "prometheus_client", "nicegui"}


@contextmanager
def service_extra() -> Iterator[None]:
    """Turn a missing package of the service into an error that names the extra."""
    try:
        yield
    except ImportError as error:
        # Another missing module is a fault of ours, and an advice to install would hide it.
        if (error.name or "").partition(".")[0] not in _SERVICE:
            raise
        raise ConfigError(
            "The service needs the extra `service`: pip install 'ayniguard[service]'."
        ) from None
