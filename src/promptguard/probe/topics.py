"""What a probe talks about: a yes/no question and what can be said for and against it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml

from promptguard.errors import DataError

_LISTS = ("arguments_for", "arguments_against", "edge_cases", "stakeholders")
_FIELDS = frozenset(("id", "language", "question", *_LISTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One question with its arguments; every list has at least two entries."""

    topic_id: str
    language: str
    question: str
    arguments_for: tuple[str, ...]
    arguments_against: tuple[str, ...]
    edge_cases: tuple[str, ...]
    stakeholders: tuple[str, ...]


def topic_from(text: str, *, name: str) -> Topic:
    """Read a topic from YAML; raises DataError that names the file and the field."""
    try:
        body = yaml.safe_load(text)
    # A date or number that is none raises what Python raises for it.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError):
        raise DataError(f"{name} is not valid YAML.") from None
    if not isinstance(body, Mapping):
        raise DataError(f"{name} must hold a mapping with {', '.join(sorted(_FIELDS))}.")
    # A misspelt field would else be left out silently.
    unknown = sorted(str(key) for key in body if key not in _FIELDS)
    if unknown:
        raise DataError(f"{name} has unknown fields: {', '.join(unknown)}.")
    lists = {field: _texts(body, field, name) for field in _LISTS}
    question = _text(body, "question", name)
    if not question.endswith(("?", "？", "か。")):
        raise DataError(f"{name}: question must be a question that yes or no answers.")
    return Topic(
        topic_id=_text(body, "id", name),
        language=_text({"language": "en", **body}, "language", name),
        question=question,
        **lists,
    )


def shipped_topics() -> tuple[Topic, ...]:
    """Return the bundled topics."""
    return _topics(_yaml_files(files("promptguard").joinpath("data/topics")))


def load_topics(paths: Iterable[Path]) -> tuple[Topic, ...]:
    """Read topics from files and folders of `*.yaml`; raises DataError, also for a repeated id."""
    found: list[Path | Traversable] = []
    for path in paths:
        there = _yaml_files(path) if path.is_dir() else [path]
        if not there:
            raise DataError(f"{path} has no topic files (*.yaml).")
        found.extend(there)
    return _topics(found)


def _topics(found: Iterable[Path | Traversable]) -> tuple[Topic, ...]:
    topics: dict[str, Topic] = {}
    for file in found:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise DataError(f"{file} cannot be read as UTF-8 text.") from None
        topic = topic_from(text, name=file.name)
        if topic.topic_id in topics:
            raise DataError(f"{file.name} repeats the topic id {topic.topic_id!r}.")
        topics[topic.topic_id] = topic
    return tuple(topics.values())


def _yaml_files(folder: Path | Traversable) -> list[Path | Traversable]:
    there = (item for item in folder.iterdir() if item.name.endswith((".yaml", ".yml")))
    # The order of a folder differs between machines, and a seed draws by order.
    return sorted(there, key=lambda item: item.name)


def _text(body: Mapping[str, object], field: str, name: str) -> str:
    value = body.get(field)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{name}: {field} must be a text.")
    return value.strip()


def _texts(body: Mapping[str, object], field: str, name: str) -> tuple[str, ...]:
    value = body.get(field)
    # Tactics use two different arguments of a list.
    if not isinstance(value, list) or len(value) < 2:
        raise DataError(f"{name}: {field} must list at least two texts.")
    return tuple(_text({field: item}, field, name) for item in value)
