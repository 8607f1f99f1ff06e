"""Where settings come from: a file, the project's table and the environment, as plain data."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from promptguard.errors import ConfigError

PREFIX = "PROMPTGUARD_"
FILE_VARIABLE = "PROMPTGUARD_CONFIG"
FILE_NAME = "promptguard.yaml"
PROJECT_FILE = "pyproject.toml"
SECTIONS = ("evaluation", "conversation", "service")
# Files that are read along with a configuration lie with it, wherever a command is started. What
# is written, such as a store, goes to the working folder.
FILES = (
    ("conversation", "weights"),
    ("conversation", "rules"),
    ("service", "weights_folder"),
    ("service", "quality_report"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Settings as they were written, and where: `where` opens every complaint about them.

    `folder` is where relative names of files begin.
    """

    values: Mapping[str, Any]
    where: str
    folder: Path = Path()


def read_source(path: str | Path | None, env: Mapping[str, str]) -> Source:
    """Return the settings of the first place that has any, with the environment's over them.

    Places: `path`, the file that PROMPTGUARD_CONFIG names, promptguard.yaml in the
    working folder, and [tool.promptguard] in its pyproject.toml. `${NAME}` in a string is
    replaced from the environment; a missing name is an error. Files that a place names (`FILES`)
    are looked for from its folder.
    """
    found = _read_place(path or env.get(FILE_VARIABLE))
    try:
        _check_keys(found.values)
        # Before the variables: files that those name are looked for from the working folder.
        values = _anchored(_interpolated(found.values, env), found.folder)
    except ConfigError as error:
        raise ConfigError(f"{found.where}: {error}") from None
    except RecursionError:  # an alias of YAML may stand within what it stands for
        raise ConfigError(f"{found.where} holds settings that hold themselves.") from None
    # PROMPTGUARD_CONFIG and the like have no double underline and name no setting.
    variables = sorted(name for name in env if name.startswith(PREFIX) and "__" in name)
    for name in variables:
        values = _overridden(values, name, env[name])
    places = [place for place in (found.where, *variables) if place]
    return Source(values=values, where=", ".join(places))


def _read_place(path: str | Path | None) -> Source:
    if path or Path(FILE_NAME).is_file():
        return _read_yaml(Path(path or FILE_NAME))
    # A missing one is as good as one without our table.
    return _read_project(Path(PROJECT_FILE))


def _read_yaml(path: Path) -> Source:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the configuration {path}: {error}.") from None
    try:
        body = _parsed(text) or {}
    except ConfigError as error:
        raise ConfigError(f"{path} is not valid YAML{error}.") from None
    if not isinstance(body, dict):
        raise ConfigError(f"{path} must hold a mapping of settings.")
    return Source(values=body, where=str(path), folder=path.parent)


def _read_project(path: Path) -> Source:
    try:
        tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool")
    except (OSError, ValueError):
        tools = None  # somebody else's file, and not ours to complain about
    table = tools.get("promptguard") if isinstance(tools, dict) else None
    if table is None:
        return Source(values={}, where="")
    where = f"{path} [tool.promptguard]"
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table of settings.")
    return Source(values=table, where=where, folder=path.parent)


def _parsed(text: str) -> Any:
    """Return what a YAML text says; ConfigError tells where it says nothing, quoting none of it."""
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        # The error's own words hold the line, in which a password may stand.
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{place}; look for a colon, bracket or quote that is amiss") from None
    except (ValueError, LookupError, AttributeError):
        # What looks like a date or a number, or is tagged as one, is made one: 2026-02-30 is none,
        # and neither is `!!int ""`.
        raise ConfigError("; quote what looks like a date or a number and is none") from None
    except (yaml.YAMLError, RecursionError):
        raise ConfigError("") from None


def _overridden(values: Mapping[str, Any], name: str, text: str) -> dict[str, Any]:
    """Return the settings with what one variable says; its value is written as in YAML."""
    path = name.removeprefix(PREFIX).lower().split("__")
    if path[0] not in SECTIONS or not all(path):
        known = ", ".join(f"{PREFIX}{section.upper()}__" for section in SECTIONS)
        raise ConfigError(f"{name} names no section; begin it with one of {known}.")
    try:
        value = _parsed(text)
    except ConfigError:
        raise ConfigError(f"{name} is not a value that YAML can read; quote it.") from None
    try:
        _check_keys(value, (name,))
    except RecursionError:
        raise ConfigError(f"{name} holds settings that hold themselves.") from None
    try:
        return _put(values, path, value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _put(values: Mapping[str, Any], path: list[str], value: object) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {**values, first: value}
    inner = values.get(first)
    if inner is not None and not isinstance(inner, Mapping):
        # One setting of it must not put what the file says out of effect unseen.
        raise ConfigError(f"{first} must hold settings, each with its name.")
    return {**values, first: _put(inner or {}, rest, value)}


def _interpolated(value: Any, env: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _interpolated(item, env) for key, item in value.items()}
    if isinstance(value, list):
        return [_interpolated(item, env) for item in value]
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", lambda match: _from_env(match[1], env), value)
    return value


def _anchored(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings with the files they name from `folder`."""
    for section, name in FILES:
        inner = values.get(section)
        if isinstance(inner, dict) and name in inner:
            values = {**values, section: {**inner, name: _from_folder(inner[name], folder)}}
    return values


def _from_folder(value: object, folder: Path) -> object:
    if isinstance(value, list):
        return [_from_folder(item, folder) for item in value]
    return str(folder / value) if isinstance(value, str) and value else value


def _check_keys(value: object, path: tuple[str, ...] = ()) -> None:
    """Refuse keys that are not text: YAML also makes numbers, dates and booleans of them."""
    if isinstance(value, list):
        for item in value:
            _check_keys(item, path)
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        if not isinstance(key, str):
            where = ".".join(path) or "the configuration"
            raise ConfigError(f"{where}: the key {key!r} is not text; write a setting's name.")
        _check_keys(item, (*path, key))


def _from_env(name: str, env: Mapping[str, str]) -> str:
    if name not in env:
        raise ConfigError(f"The configuration uses ${{{name}}}, which is not set; set it.")
    return env[name]
