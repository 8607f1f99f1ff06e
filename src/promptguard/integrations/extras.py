"""What the adapters share: the error where a framework is missing, what the user asked last."""

from __future__ import annotations

from collections.abc import Iterable

from promptguard.conversation import Role, messages_from
from promptguard.errors import ConfigError


def missing(extra: str, error: ImportError) -> ConfigError:
    """Return an error that says what to install; raise it `from None`."""
    return ConfigError(
        f"This adapter needs {error.name or extra}: pip install 'ayniguard[{extra}]'."
    )


def last_asked(messages: Iterable[object]) -> str:
    """Return the user's latest words in a message list: the task that a tool's result serves."""
    given = list(messages)
    asked = [m.content for m in messages_from(given) if m.role is Role.USER] if given else []
    return asked[-1] if asked else ""
