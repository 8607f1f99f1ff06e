"""Named functions from a turn to a score, and what they are written with.

A signal is `TurnContext -> SignalScore`, pure and synchronous; signals that look at the same
thing are in one file. Importing this package loads nothing: `load_signals()` imports the files
below, whose functions register themselves; signals of installed packages (entry point group
`promptguard.signal`) come after them. A signal's tuned numbers are one table of
`data/signals.toml`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from promptguard.errors import DataError
from promptguard.protocols import Signal
from promptguard.registry import Registry

SIGNALS: Registry[Signal] = Registry("signal")
# The file of each signal, in the order in which they are computed.
# `session` reads the score of `semantic`, and `intent` those of the two shapes of a talk before it.
_FILES = {
    "semantic": "readings",
    "context": "readings",
    "concepts": "readings",
    "keywords": "wording",
    "fil": "readings",
    "form": "structure",
    "system_rules": "subject",
    "session": "session",
    "continuation": "subject",
    "probing": "subject",
    "trajectory": "session",
    "information_gathering": "intent",
    "coherence": "subject",
    "behavior": "session",
    "response": "session",
    "intent": "intent",
}
T = TypeVar("T")


def load_signals(names: Sequence[str] | None = None) -> tuple[tuple[str, Signal], ...]:
    """Return the signals of these names, or all, in the order in which they are computed."""
    registry = _registered()
    # A file registers its signals when it is imported, which may be in another order.
    known = (*_FILES, *(name for name in registry.names() if name not in _FILES))
    # Looked up as given, so that a name that nothing has is refused.
    chosen = {name: registry.get(name) for name in (known if names is None else names)}
    return tuple((name, chosen[name]) for name in known if name in chosen)


def read_tuning(section: str, form: type[T]) -> T:
    """Return one table as the frozen dataclass `form`, whose fields it must have exactly."""
    return build(_tables().get(section, {}), form, where=f"signals.toml [{section}]")


def build(table: object, form: type[T], *, where: str) -> T:
    """Return `table` as `form`; raise DataError naming `where` if it does not fit."""
    expected = {field.name for field in fields(form)} if is_dataclass(form) else set()
    if not isinstance(table, dict) or set(table) != expected:
        raise DataError(f"{where} must hold exactly {', '.join(sorted(expected))}.")
    try:
        return TypeAdapter(form).validate_python(table)
    except ValidationError as error:
        raise DataError(f"{where} has {error.error_count()} values of the wrong kind.") from None


def clipped(value: float) -> float:
    """Return `value` held within [0,1]; what is no number is 0."""
    return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0


def noisy_or(values: Iterable[float]) -> float:
    """Return the chance that at least one of several independent causes holds."""
    none = 1.0
    for value in values:
        none *= 1.0 - clipped(value)
    return 1.0 - none


@cache
def _registered() -> Registry[Signal]:
    # Imported here and not above: the files import this package, and importing it loads nothing.
    for file in dict.fromkeys(_FILES.values()):
        import_module(f"promptguard.signals.{file}")
    return SIGNALS


@cache
def _tables() -> dict[str, Any]:
    source = files("promptguard").joinpath("data/signals.toml").read_text(encoding="utf-8")
    return tomllib.loads(source)


__all__ = ["SIGNALS", "build", "clipped", "load_signals", "noisy_or", "read_tuning"]
