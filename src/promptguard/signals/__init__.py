"""Named functions from a turn to a score.

A signal is `TurnContext -> SignalScore`, pure and synchronous. Importing this package loads
nothing: `load_signals()` imports the modules below, which register themselves.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from promptguard.protocols import Signal
from promptguard.registry import Registry

SIGNALS: Registry[Signal] = Registry("signal")
_MODULES = (
    "keywords",
    "trajectory",
    "coherence",
    "information_gathering",
    "intent",
    "semantic",
    "context",
    "behavior",
    "probing",
    "response",
    "fil",
)


@cache
def load_signals() -> Registry[Signal]:
    """Return the registry with every built-in signal in it."""
    for module in _MODULES:
        import_module(f"promptguard.signals.{module}")
    return SIGNALS


__all__ = ["SIGNALS", "load_signals"]
