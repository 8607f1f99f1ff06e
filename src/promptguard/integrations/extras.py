"""The error of an adapter whose framework is not installed."""

from __future__ import annotations

from promptguard.errors import ConfigError


def missing(extra: str, error: ImportError) -> ConfigError:
    """Return an error that says what to install; raise it `from None`."""
    return ConfigError(
        f"This adapter needs {error.name or extra}: pip install 'ayniguard[{extra}]'."
    )
