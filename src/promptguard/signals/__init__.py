"""Named functions from a turn to a score.

A signal is `TurnContext -> SignalScore`, pure and synchronous. Importing this package loads
nothing: `load_signals()` imports the modules below, which register themselves in the order in
which they are computed; those of installed packages (entry point group `promptguard.signal`) come
after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module

from promptguard.protocols import Signal
from promptguard.registry import Registry

SIGNALS: Registry[Signal] = Registry("signal")
_MODULES = (
    "semantic",
    "context",
    "concepts",
    "keywords",
    "fil",
    "system_rules",
    "session",
    "continuation",
    "probing",
    "trajectory",
    "information_gathering",
    "coherence",
    "behavior",
    "response",
    "intent",
)


def load_signals(names: Sequence[str] | None = None) -> tuple[tuple[str, Signal], ...]:
    """Return the signals of these names, or all, in the order in which they are computed."""
    registry = _registered()
    # Modules may have been imported, and so registered, in another order than the list's.
    known = (*_MODULES, *(name for name in registry.names() if name not in _MODULES))
    chosen = known if names is None else names
    return tuple((name, registry.get(name)) for name in chosen)


@cache
def _registered() -> Registry[Signal]:
    for module in _MODULES:
        import_module(f"promptguard.signals.{module}")
    return SIGNALS


__all__ = ["SIGNALS", "load_signals"]
