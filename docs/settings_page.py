"""Writes docs/configuration.md from the settings themselves: `python -m docs.settings_page`."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from promptguard.config import Settings
from promptguard.setting_faults import section_in

PAGE = Path(__file__).with_name("configuration.md")
_HEAD = """# Configuration

<!-- Generated from src/promptguard/config.py by `python -m docs.settings_page`; do not edit. -->

Settings come from the first of: the YAML file given with `--config`, the one that the environment
variable `PROMPTGUARD_CONFIG` names, `promptguard.yaml` in the working folder, the table
`[tool.promptguard]` in its `pyproject.toml`, the defaults below. Over them go variables of the form
`PROMPTGUARD_SECTION__NAME`, with a value as YAML writes it: `PROMPTGUARD_SERVICE__PORT=9000`,
`PROMPTGUARD_CONVERSATION__POLICY__BLOCK_FROM=UNSAFE`. `${NAME}` in a value is replaced from the
environment; a name that is not set is an error. Unknown settings are errors too, and errors name
file or variable, section and setting. A relative path in `conversation.weights`,
`conversation.rules`, `service.weights_folder` or `service.quality_report` is looked for from the
folder of the file that names it; every other one, and one in a variable, from the working folder.
In Python the same settings are arguments:
`PromptGuardConfig(models=["ollama/llama3.2"])`; `Guard.from_settings()` reads them as the command
line does.
`conversation.evaluation` and `conversation.endpoint` take what `evaluation` and
`evaluation.endpoint` take.

```yaml
version: 1
evaluation:
  models: [local, ollama/llama3.2]
  mode: cascade
  evaluation_type: [ayni_relational, relational_structure]
  ensemble_strategy: max_falsehood
  cache:
    path: ${HOME}/.cache/promptguard.db
conversation:
  preset: balanced
  store: sqlite:promptguard.db
```
"""


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for name, model in _sections("", Settings):
        heading = f"`{name}`" if name else "Top level"
        parts.append(f"## {heading}\n\n{inspect.getdoc(model)}\n\n{_table(model)}\n")
    return "\n".join(parts)


def _sections(prefix: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    yield prefix, model
    for name, field in model.model_fields.items():
        inner = section_in(field.annotation)
        # A model that stands in several places is written out in its first.
        if inner is not None and not (
            prefix == "conversation" and name in ("evaluation", "endpoint")
        ):
            yield from _sections(f"{prefix}.{name}".strip("."), inner)


def _table(model: type[BaseModel]) -> str:
    rows = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        kind = _escaped(_kind(field.annotation) + _bounds(field))
        meaning = _escaped(" ".join((field.description or "").split()))
        rows.append(f"| `{name}` | {kind} | {_escaped(_default(field))} | {meaning} |")
    return "\n".join(rows)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _kind(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(item) for item in inner)
    if origin is Annotated:
        return _kind(inner[0]) + "".join(
            _bounds(item) for item in inner[1:] if isinstance(item, FieldInfo)
        )
    if origin is Literal:
        return ", ".join(f"`{item}`" for item in inner)
    if origin in (tuple, Sequence):
        return f"list of {_kind(inner[0])}"
    if origin is dict:
        return f"mapping of {_kind(inner[0])} to {_kind(inner[1])}"
    return _plain_kind(kind)


def _plain_kind(kind: Any) -> str:
    if kind is type(None):
        return "null"
    if issubclass(kind, Enum):
        return ", ".join(f"`{item.value}`" for item in kind)
    if issubclass(kind, BaseModel):
        return "section"
    return {str: "text", float: "number", int: "whole number", bool: "true or false"}[kind]


def _bounds(field: FieldInfo) -> str:
    words = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    found = [
        f"{sign} {getattr(item, attribute)}"
        for item in field.metadata
        for attribute, sign in words.items()
        if getattr(item, attribute, None) is not None
    ]
    return f" ({', '.join(found)})" if found else ""


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel):
        return "its section"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value) or "none"
    if value is None:
        return "null"
    if value == "" or value == {}:
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
