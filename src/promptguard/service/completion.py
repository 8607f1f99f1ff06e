"""What an upstream's answer says, whole or in chunks; everything else in it is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SHOWN = ("reasoning_content", "reasoning", "content", "refusal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one choice of an answer, or of one chunk of it, says.

    `text` is the answer proper; `shown` is all the user gets to read, reasoning included.
    """

    index: int
    text: str
    shown: str
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer or chunk; `error` where the upstream put an error in its place."""

    pieces: tuple[Piece, ...]
    id: str = ""
    model: str = ""
    created: int = 0
    is_error: bool = False


def read_answer(raw: str | bytes) -> Answer | None:
    """Read one JSON answer or chunk, None where it is neither."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    if body.get("error"):
        return Answer(pieces=(), is_error=True)
    choices = body.get("choices")
    if not isinstance(choices, list):
        return None
    created = body.get("created")
    return Answer(
        pieces=tuple(_pieces(choices)),
        id=_string(body.get("id")),
        model=_string(body.get("model")),
        created=created if isinstance(created, int) else 0,
    )


def _pieces(choices: list[object]) -> Iterator[Piece]:
    for at, choice in enumerate(choices):
        if not isinstance(choice, Mapping):
            continue
        said = choice.get("message") or choice.get("delta")
        said = said if isinstance(said, Mapping) else {}
        index = choice.get("index")
        text = _content(said.get("content")) or _string(said.get("refusal"))
        yield Piece(
            index=index if isinstance(index, int) else at,
            text=text,
            shown="".join(_content(said.get(name)) for name in _SHOWN),
            is_last=choice.get("finish_reason") is not None,
        )


def _content(value: object) -> str:
    if isinstance(value, list):
        parts = (part.get("text") for part in value if isinstance(part, Mapping))
        return "".join(_string(part) for part in parts)
    return _string(value)


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
