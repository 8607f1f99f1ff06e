"""A chat completion request: read strictly, passed on unchanged.

What the guard reads must be what the model reads, so JSON that two parsers could understand
differently (repeated keys, keys in another case, another encoding) is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from promptguard.conversation import Role, role_of
from promptguard.core.prompt import without_lone_surrogates
from promptguard.errors import InputError
from promptguard.service.faults import Fault
from promptguard.turns.remember import content_hash

_KNOWN = frozenset(
    {"messages", "model", "stream", "role", "content", "tool_calls", "text", "type", "refusal"}
)
_TEXT_KEYS = ("text", "content", "value", "refusal", "input_text", "output_text")
_THINKING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_MAX_DEPTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message of the conversation as it is judged and compared: bare text and its hash."""

    role: Role
    text: str
    digest: str

    @classmethod
    def of(cls, role: Role, text: str) -> Said:
        """Return a message without what clients drop: outer blanks, a model's thinking aloud."""
        if role is Role.ASSISTANT:
            text = _THINKING.sub("", text)
        bare = without_lone_surrogates(text).strip()
        return cls(role=role, text=bare, digest=content_hash(bare))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request: `raw` is what came, `said` every message with text but the developer's."""

    raw: bytes
    body: Mapping[str, object]
    said: tuple[Said, ...]
    model: str
    is_stream: bool

    def steered(self, notice: str) -> bytes:
        """Return the body with one more system message, after those that are there."""
        messages = self.body["messages"]
        assert isinstance(messages, list)
        leading = 0
        while leading < len(messages) and _role_in(messages[leading]) is Role.SYSTEM:
            leading += 1
        role = str(messages[leading - 1]["role"]) if leading else Role.SYSTEM.value
        notes = [{"role": role, "content": notice}]
        body = {**self.body, "messages": [*messages[:leading], *notes, *messages[leading:]]}
        return json.dumps(body).encode()


def read_chat_request(raw: bytes, *, max_messages: int, max_chars: int) -> ChatRequest:
    """Read a request; raises a Fault that names the field where it cannot be judged."""
    body = read_json(raw)
    _check_keys(body, "body")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", "must be a list with at least one message")
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise _wrong("stream", "must be true or false")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise _wrong("model", "must name a model")
    return ChatRequest(
        raw=raw,
        body=body,
        said=read_messages(messages, max_messages=max_messages, max_chars=max_chars),
        model=model,
        is_stream=bool(stream),
    )


def read_json(raw: bytes) -> dict[str, object]:
    """Read one JSON object in UTF-8 without repeated keys."""
    try:
        body = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant
        )
    except Fault:
        raise
    except (ValueError, RecursionError):
        raise Fault(
            400, "The body is not valid JSON in UTF-8.", code="invalid_json", param="body"
        ) from None
    if not isinstance(body, dict):
        raise _wrong("body", "must be a JSON object")
    return body


def read_messages(
    messages: Sequence[object], *, max_messages: int, max_chars: int
) -> tuple[Said, ...]:
    """Return what was said, without the developer's messages and those without text."""
    if len(messages) > max_messages:
        raise Fault(
            413,
            f"messages: at most {max_messages} are accepted in one request.",
            code="too_many_messages",
            param="messages",
        )
    read = (_said(item, f"messages[{at}]", max_chars) for at, item in enumerate(messages))
    return tuple(said for said in read if said.role is not Role.SYSTEM and said.text)


def _said(item: object, where: str, max_chars: int) -> Said:
    if not isinstance(item, dict):
        raise _wrong(where, "must be an object with role and content")
    _check_keys(item, where)
    if not isinstance(item.get("role"), str):
        raise _wrong(f"{where}.role", "must be a string")
    if "content" not in item and "tool_calls" not in item:
        raise _wrong(f"{where}.content", "is missing")
    text = "\n".join(_texts(item.get("content"), f"{where}.content"))
    if len(text) > max_chars:
        raise Fault(
            413,
            f"{where}.content has {len(text)} characters, more than the {max_chars} accepted.",
            code="message_too_long",
            param=f"{where}.content",
        )
    return Said.of(_role_in(item), text)


def _texts(content: object, where: str) -> Iterator[str]:
    if content is None:
        return
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for at, part in enumerate(content):
            if isinstance(part, dict):
                _check_keys(part, f"{where}[{at}]")
            elif not isinstance(part, str):
                raise _wrong(f"{where}[{at}]", "must be text or an object")
            yield from _strings(part)
    else:
        raise _wrong(where, "must be a string or a list of parts")


def _strings(part: object, depth: int = 0) -> Iterator[str]:
    """Yield the texts in a part of any kind; nobody else will read what is passed over here."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, list) and depth < _MAX_DEPTH:
        for item in part:
            yield from _strings(item, depth + 1)
    elif isinstance(part, dict) and depth < _MAX_DEPTH:
        for name, value in part.items():
            if name in _TEXT_KEYS or isinstance(value, (dict, list)):
                yield from _strings(value, depth + 1)


def _role_in(item: object) -> Role:
    """Return who speaks; a role nobody here knows is not the developer's, so it is judged."""
    name = item.get("role") if isinstance(item, dict) else None
    try:
        return role_of(name)
    except InputError:
        return Role.TOOL


def _check_keys(item: Mapping[str, object], where: str) -> None:
    """Refuse keys that a lenient parser would take for the ones that are read here."""
    for key in item:
        if key not in _KNOWN and key.casefold() in _KNOWN:
            raise _wrong(where, f"has a key that is {key.casefold()!r} in another spelling")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Fault(400, "The body repeats a key.", code="invalid_json", param="body")
    return found


def _no_constant(_: str) -> object:
    raise ValueError


def _wrong(where: str, what: str) -> Fault:
    return Fault(400, f"{where} {what}.", code="invalid_field", param=where)
