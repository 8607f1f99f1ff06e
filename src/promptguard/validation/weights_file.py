"""Fitted weights written down, in the form that `risk/weights.py` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from promptguard.errors import ConfigError
from promptguard.risk.weights import Weights

_DIGITS = 6


def weights_to_toml(weights: Weights) -> str:
    """Return the file's text."""
    return "\n".join(_lines(weights)) + "\n"


def write_weights(weights: Weights, path: Path) -> None:
    """Write the file; raises ConfigError where that fails."""
    try:
        path.write_text(weights_to_toml(weights), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"Cannot write {path}: {error.strerror}.") from None


def _lines(weights: Weights) -> Iterator[str]:
    yield f"version = {_value(weights.version)}"
    yield f"fitted_on = {_value(weights.fitted_on)}"
    for name, weight in weights.signals.items():
        yield from _section(f"[signals.{name}]", weight)
    yield from _section("[leak]", weights.leak)
    yield from _section("[modes]", weights.modes)
    for budget in weights.budgets:
        yield from _section("[[budgets]]", budget)


def _section(head: str, part: BaseModel) -> Iterator[str]:
    yield ""
    yield head
    for name, value in part.model_dump().items():
        yield f"{name} = {_value(value)}"


def _value(value: str | float) -> str:
    # A JSON string is a TOML string, but for the code point that only TOML wants escaped.
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(round(float(value), _DIGITS))
