"""Where the signals' tuned numbers come from: `data/signals.toml`, one table per signal."""

from __future__ import annotations

import tomllib
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from promptguard.errors import DataError

T = TypeVar("T")


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


@cache
def _tables() -> dict[str, Any]:
    source = files("promptguard").joinpath("data/signals.toml").read_text(encoding="utf-8")
    return tomllib.loads(source)
