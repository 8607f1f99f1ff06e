"""OpenAI's chat completion format: requests, the upstream's answers, and the guard's own.

What the guard reads must be what the model reads, so a request that two JSON parsers could
understand differently (repeated keys, keys in another case, another encoding) is refused.
Accepted requests and answers are passed on byte by byte.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from promptguard.conversation import Role, role_of
from promptguard.errors import InputError
from promptguard.service.errors import ApiError, error_body
from promptguard.service.history import ComparableMessage

_KNOWN = frozenset(
    {"messages", "model", "stream", "role", "content", "tool_calls", "text", "type", "refusal"}
)
# Where content parts of known and unknown kinds keep their text.
_TEXT_KEYS = ("text", "content", "value", "refusal", "input_text", "output_text")
# What clients show of an answer, in the order in which models produce it.
_SHOWN_FIELDS = ("reasoning_content", "reasoning", "content", "refusal")
_MAX_DEPTH = 6
_MAX_CHOICES = 128
_NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
DONE = b"data: [DONE]\n\n"
CONTENT_FILTER = "content_filter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request: `raw` as it came, `messages` those with text, without the developer's."""

    raw: bytes
    body: Mapping[str, object]
    messages: tuple[ComparableMessage, ...]
    model: str
    is_stream: bool

    @property
    def choice_count(self) -> int:
        """How many answers are asked for (`n`); one where the field is odd."""
        n = self.body.get("n")
        return n if isinstance(n, int) and 1 <= n <= _MAX_CHOICES else 1

    @property
    def wants_usage(self) -> bool:
        """Whether a stream is to end with a chunk that holds the usage."""
        options = self.body.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    @property
    def end_user(self) -> str:
        """OpenAI's `user` field: whose conversation it is, not which."""
        user = self.body.get("user")
        return user if isinstance(user, str) else ""

    def steered(self, notice: str) -> bytes:
        """Return the body with one more system message, after those that are there."""
        messages = self.body["messages"]
        assert isinstance(messages, list)
        # After the developer's own messages, in the role that the client uses for them: some
        # models accept only `developer`, others only `system`.
        leading = 0
        while leading < len(messages) and _role_in(messages[leading]) is Role.SYSTEM:
            leading += 1
        role = str(messages[leading - 1]["role"]) if leading else Role.SYSTEM.value
        notes = [{"role": role, "content": notice}]
        body = {**self.body, "messages": [*messages[:leading], *notes, *messages[leading:]]}
        return json.dumps(body).encode()


def read_chat_request(raw: bytes, *, max_messages: int, max_chars: int) -> ChatRequest:
    """Read a request; raises an ApiError that names the field where it cannot be judged."""
    body = read_json(raw)
    _check_keys(body, "body")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _invalid("messages", "must be a list with at least one message")
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise _invalid("stream", "must be true or false")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise _invalid("model", "must name a model")
    return ChatRequest(
        raw=raw,
        body=body,
        messages=read_messages(messages, max_messages=max_messages, max_chars=max_chars),
        model=model,
        is_stream=bool(stream),
    )


def read_json(raw: bytes) -> dict[str, object]:
    """Read one JSON object in UTF-8 without repeated keys."""
    try:
        body = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_without_repeats,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except ApiError:
        raise
    except (ValueError, RecursionError):
        raise ApiError(
            400, "The body is not valid JSON in UTF-8.", code="invalid_json", param="body"
        ) from None
    if not isinstance(body, dict):
        raise _invalid("body", "must be a JSON object")
    return body


def read_messages(
    messages: Sequence[object], *, max_messages: int, max_chars: int
) -> tuple[ComparableMessage, ...]:
    """Return the messages of a conversation, without the developer's and those without text.

    A last message without text, such as an image alone, still begins a turn: it becomes an empty
    user message.
    """
    if len(messages) > max_messages:
        raise ApiError(
            413,
            f"messages: at most {max_messages} are accepted in one request.",
            code="too_many_messages",
            param="messages",
        )
    read = [_message(item, f"messages[{at}]", max_chars) for at, item in enumerate(messages)]
    spoken = [item for item in read if item.role is not Role.SYSTEM]
    judged = tuple(item for item in spoken if item.content)
    if spoken and not spoken[-1].content and spoken[-1].role is not Role.ASSISTANT:
        return (*judged, ComparableMessage.of(Role.USER, ""))
    return judged


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceText:
    """The text of one choice of an answer, or of one chunk of it.

    `text` is the answer proper; `shown` is all that the user gets to read, reasoning included.
    """

    index: int
    text: str
    shown: str
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer or chunk; `is_error` where the upstream sent an error in its place."""

    choices: tuple[ChoiceText, ...]
    id: str = ""
    model: str = ""
    created: int = 0
    is_error: bool = False


def read_completion(raw: str | bytes) -> Completion | None:
    """Read one JSON answer or chunk, None where it is neither."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    if body.get("error"):
        return Completion(choices=(), is_error=True)
    choices = body.get("choices")
    if not isinstance(choices, list):
        return None
    created = body.get("created")
    return Completion(
        choices=tuple(_choice_texts(choices)),
        id=_string(body.get("id")),
        model=_string(body.get("model")),
        created=created if isinstance(created, int) else 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The fields around a completion; those of the upstream's own answer where there is one."""

    model: str
    created: int
    id: str = field(default_factory=lambda: f"chatcmpl-pg{secrets.token_hex(12)}")

    def fields(self, kind: str) -> dict[str, object]:
        """Return the fields every completion and every chunk begins with."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def refusal_completion(envelope: Envelope, text: str, *, choices: int = 1) -> dict[str, object]:
    """Return a completion that refuses, with the finish reason clients know for it."""
    return {
        **envelope.fields("chat.completion"),
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "logprobs": None,
                "finish_reason": CONTENT_FILTER,
            }
            for index in range(choices)
        ],
        "usage": _NO_USAGE,
    }


def refusal_events(
    envelope: Envelope, text: str, *, begins: bool, choices: int = 1, has_usage: bool = False
) -> Iterator[bytes]:
    """Yield the events that end a stream with a refusal; `begins` where nothing was sent yet.

    `has_usage`: the client asked for a last chunk with the usage.
    """
    fields = envelope.fields("chat.completion.chunk")
    role = {"role": "assistant"} if begins else {}
    deltas: tuple[tuple[Mapping[str, object], str | None], ...] = (
        ({**role, "content": text}, None),
        ({}, CONTENT_FILTER),
    )
    for index in range(choices):
        for delta, reason in deltas:
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
            yield sse_event(json.dumps({**fields, "choices": [choice]}))
    if has_usage:
        yield sse_event(json.dumps({**fields, "choices": [], "usage": _NO_USAGE}))
    yield DONE


def error_events(error: ApiError) -> Iterator[bytes]:
    """Yield the events that end a stream with an error, once its status can no longer change."""
    body = error_body(error.status_code, str(error.detail), code=error.code)
    yield sse_event(json.dumps(body))
    yield DONE


def sse_event(data: str) -> bytes:
    """Return one server-sent event."""
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"{lines}\n".encode("utf-8", "replace")


def _message(item: object, where: str, max_chars: int) -> ComparableMessage:
    if not isinstance(item, dict):
        raise _invalid(where, "must be an object with role and content")
    _check_keys(item, where)
    if not isinstance(item.get("role"), str):
        raise _invalid(f"{where}.role", "must be a string")
    if "content" not in item and "tool_calls" not in item:
        raise _invalid(f"{where}.content", "is missing")
    text = "\n".join(_texts(item.get("content"), f"{where}.content"))
    if len(text) > max_chars:
        raise ApiError(
            413,
            f"{where}.content has {len(text)} characters, more than the {max_chars} accepted.",
            code="message_too_long",
            param=f"{where}.content",
        )
    return ComparableMessage.of(_role_in(item), text)


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
                raise _invalid(f"{where}[{at}]", "must be text or an object")
            yield from _strings(part)
    else:
        raise _invalid(where, "must be a string or a list of parts")


def _strings(part: object, depth: int = 0) -> Iterator[str]:
    """Yield every text in a content part of any kind; what is skipped here is never judged."""
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
    """Return the role; an unknown one counts as a tool's, so that its text is judged."""
    name = item.get("role") if isinstance(item, dict) else None
    try:
        return role_of(name)
    except InputError:
        return Role.TOOL


def _check_keys(item: Mapping[str, object], where: str) -> None:
    """Refuse keys that a case-insensitive parser would take for the ones read here."""
    for key in item:
        if key not in _KNOWN and key.casefold() in _KNOWN:
            raise _invalid(where, f"has a key that is {key.casefold()!r} in another spelling")


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    body = dict(pairs)
    if len(body) < len(pairs):
        raise ApiError(400, "The body repeats a key.", code="invalid_json", param="body")
    return body


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def _finite(text: str) -> float:
    """Refuse numbers beyond a double: they would be sent on as Infinity, which is not JSON."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(text)
    return number


def _invalid(where: str, what: str) -> ApiError:
    return ApiError(400, f"{where} {what}.", code="invalid_field", param=where)


def _choice_texts(choices: list[object]) -> Iterator[ChoiceText]:
    for at, choice in enumerate(choices):
        if not isinstance(choice, Mapping):
            continue
        message = choice.get("message") or choice.get("delta")
        message = message if isinstance(message, Mapping) else {}
        index = choice.get("index")
        text = _content(message.get("content")) or _string(message.get("refusal"))
        yield ChoiceText(
            index=index if isinstance(index, int) else at,
            text=text,
            shown="".join(_content(message.get(name)) for name in _SHOWN_FIELDS),
            is_last=choice.get("finish_reason") is not None,
        )


def _content(value: object) -> str:
    if isinstance(value, list):
        parts = (part.get("text") for part in value if isinstance(part, Mapping))
        return "".join(_string(part) for part in parts)
    return _string(value)


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
