"""What is wrong with settings, in words: which section, which setting, what was likely meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from promptguard.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_MOST_NEAR = 3
# pydantic builds inner sections with the same constructor, where the error must stay its own.
_is_inner: ContextVar[bool] = ContextVar("is_inner", default=False)


class Section(BaseModel):
    """Settings that belong together, whose faults are told as a ConfigError."""

    # A misspelt name must not be without effect. docs/settings_page.py writes the docstrings out.
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    # Positional, so that a file's unknown setting "self" is told like any other.
    def __init__(self, /, **values: Any) -> None:
        is_inner = _is_inner.get()
        token = _is_inner.set(True)
        try:
            super().__init__(**values)
        except ValidationError as error:
            if is_inner:  # the outermost section knows the whole name of the setting
                raise
            raise ConfigError(f"Configuration: {readable(error, type(self))}") from None
        finally:
            _is_inner.reset(token)


def readable(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the faults that `model` found, a sentence each, without what was given."""
    # What was given may be a key or a password.
    found = error.errors(include_input=False, include_url=False)
    return " ".join(_in_words(item, model) for item in found)


def section_in(kind: Any) -> type[BaseModel] | None:
    """Return the section that a setting's type holds, alone, listed, by name or optionally."""
    for candidate in (kind, *get_args(kind)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _in_words(item: ErrorDetails, model: type[BaseModel]) -> str:
    parts = [str(part) for part in item["loc"]]
    if item["type"] == "extra_forbidden":
        return _unknown(parts, model)
    where = ".".join(parts) or "configuration"
    if item["type"] == "model_type":
        return f"{where} must hold settings, each with its name."
    return f"{where}: {item['msg']}."


def _unknown(parts: Sequence[str], model: type[BaseModel]) -> str:
    *above, name = parts
    section = model
    for part in above:
        # The number of a list's item and the name of a mapping's are no settings.
        field = section.model_fields.get(part)
        section = (field and section_in(field.annotation)) or section
    near = get_close_matches(name, section.model_fields, n=1)
    meant = [".".join((*above, each)) for each in near]
    meant += [path for path in _names(model) if path.rpartition(".")[2] == name]
    likely = " or ".join(meant[:_MOST_NEAR])
    fault = f"{'.'.join(above)} has no setting {name}" if above else f"there is no setting {name}"
    return f"{fault}; did you mean {likely}?" if likely else f"{fault}."


def _names(model: type[BaseModel]) -> Iterator[str]:
    """Yield every setting's whole name, those of outer sections first."""
    inner = []
    for name, field in model.model_fields.items():
        yield name
        section = section_in(field.annotation)
        if section is not None:
            inner.append((name, section))
    for name, section in inner:
        yield from (f"{name}.{path}" for path in _names(section))
