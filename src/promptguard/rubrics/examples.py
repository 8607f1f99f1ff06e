"""Example conversations with the answer the rubric must give, and whether it gives it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from promptguard.conversation import Message, messages_from
from promptguard.errors import DataError, InputError
from promptguard.rubrics.comparison import SameQuestion
from promptguard.rubrics.contradiction import ContradictionVerdict, judge_contradiction

_KINDS = ("positive", "negative")
_TEXTS = ("id", "type", "rationale")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One conversation, what the rubric must say of it, and why."""

    example_id: str
    is_contradiction: bool
    conversation: tuple[Message, ...]
    rationale: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleResult:
    """What became of one file: judged, or `fault` where it could not be read."""

    name: str
    example: Example | None = None
    verdict: ContradictionVerdict | None = None
    fault: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the rubric gave the expected answer."""
        if self.example is None or self.verdict is None:
            return False
        return self.verdict.is_contradiction == self.example.is_contradiction


def validate_examples(
    folder: Path | None = None, *, same_question: SameQuestion | None = None
) -> tuple[ExampleResult, ...]:
    """Judge every `positive/*.json` and `negative/*.json` in `folder`, or the shipped ones.

    A file that cannot be read is a result with its fault; the others are judged all the same.
    Raises DataError where there is no such folder or nothing in it.
    """
    root = folder or files("promptguard").joinpath("data/rubric/examples")
    found = tuple(_files(root))
    if not found:
        raise DataError(f"{root} has no positive/*.json or negative/*.json.")
    return tuple(_result(kind, file, same_question) for kind, file in found)


def example_from(text: str, *, kind: str) -> Example:
    """Read one example of `kind` (positive or negative) from JSON; raises DataError."""
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"not valid JSON (line {error.lineno})") from None
    except (ValueError, RecursionError):
        # A number of thousands of digits, or lists within lists without end.
        raise DataError("not JSON that can be read") from None
    if not isinstance(body, Mapping):
        raise DataError("not a JSON object")
    for name in _TEXTS:
        if not isinstance(body.get(name), str) or not body[name]:
            raise DataError(f"{name} must be a text")
    if body["type"] != kind:
        raise DataError(f"type must be {kind!r}, as its folder is")
    if body.get("expectedResult") is not (kind == "positive"):
        raise DataError(f"expectedResult must be {str(kind == 'positive').lower()} here")
    try:
        conversation = messages_from(body.get("conversation"))
    except InputError as error:
        raise DataError(f"conversation: {error}") from None
    return Example(
        example_id=body["id"],
        is_contradiction=body["expectedResult"],
        conversation=conversation,
        rationale=body["rationale"],
    )


def _files(root: Path | Traversable) -> Iterator[tuple[str, Path | Traversable]]:
    for kind in _KINDS:
        folder = root / kind
        if folder.is_dir():
            files_there = (item for item in folder.iterdir() if item.name.endswith(".json"))
            yield from ((kind, item) for item in sorted(files_there, key=lambda item: item.name))


def _result(
    kind: str, file: Path | Traversable, same_question: SameQuestion | None
) -> ExampleResult:
    name = f"{kind}/{file.name}"
    try:
        example = example_from(file.read_text(encoding="utf-8"), kind=kind)
    except (DataError, OSError, UnicodeDecodeError) as error:
        fault = str(error) if isinstance(error, DataError) else "cannot be read as UTF-8 text"
        return ExampleResult(name=name, fault=fault)
    verdict = judge_contradiction(example.conversation, same_question=same_question)
    return ExampleResult(name=name, example=example, verdict=verdict)
