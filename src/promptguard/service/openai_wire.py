"""OpenAI's chat completion format: requests, the upstream's answers, and the guard's own.

Accepted requests and answers are passed on byte by byte, unless a notice is added to a request
or a poisoned content is taken out of it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from promptguard.conversation import ComparableMessage, Role, role_of, thinking_in
from promptguard.errors import InputError
from promptguard.service.body import (
    Limits,
    Place,
    Reading,
    check_count,
    check_keys,
    checked_flag,
    checked_model,
    fields_of,
    invalid,
    name_of,
    read_json,
)
from promptguard.service.errors import ApiError
from promptguard.service.wire import (
    CONTENT_FILTER,
    DONE,
    ChoiceText,
    Completion,
    GuardedRequest,
    Refusal,
    mapping,
    objects,
    openai_error,
    parsed,
    sse_event,
    string,
)

_KNOWN = frozenset(
    {"messages", "model", "stream", "role", "content", "tool_calls", "text", "type", "refusal"}
)
# Kinds of parts that are the speaker's own words, and where they keep them.
_OWN_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
# Fields of a message that say who and which, and carry no text.
_PLAIN_FIELDS = frozenset({"role", "content", "tool_call_id", "id", "type", "index", "status"})
# Fields of the body that no model reads: they steer the server or are kept for its operator.
NOT_READ = frozenset(
    {
        "messages",
        "model",
        "stream",
        "stream_options",
        "user",
        "metadata",
        "stop",
        "tool_choice",
        "function_call",
        "safety_identifier",
        "prompt_cache_key",
        "session_id",
        "thread_id",
        "conversation_id",
        "litellm_session_id",
    }
)
# Lists whose items come from different hands, so each is judged by itself.
ITEMISED = frozenset({"tools", "functions", "documents"})
# What leaves a model with an answer, in the order in which models produce it.
_SHOWN_FIELDS = (
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "content",
    "refusal",
    "audio",
    "tool_calls",
    "function_call",
)
_SHOWN_TEXTS = ("text", "summary", "transcript", "arguments", "input", "thinking")
_MAX_CHOICES = 128
_NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest(GuardedRequest):
    """A chat completion request."""

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

    def noticed(self, body: Mapping[str, object], notice: str) -> Mapping[str, object]:
        """Return the body with one more system message, after the developer's own.

        It has the role that the client uses for them: some models accept only `developer`, others
        only `system`.
        """
        messages = body["messages"]
        assert isinstance(messages, list)
        leading = 0
        while leading < len(messages) and role_in(messages[leading]) is Role.SYSTEM:
            leading += 1
        role = str(messages[leading - 1]["role"]) if leading else Role.SYSTEM.value
        notes = [{"role": role, "content": notice}]
        return {**body, "messages": [*messages[:leading], *notes, *messages[leading:]]}


class ChatWire:
    """`POST /v1/chat/completions`."""

    path = "/chat/completions"
    operation = "chat"

    def new_id(self) -> str:
        """Return an id for a completion of our own."""
        return f"chatcmpl-pg{secrets.token_hex(12)}"

    def read_request(self, raw: bytes, limits: Limits) -> ChatRequest:
        """Read a request."""
        body = read_json(raw)
        check_keys(body, "body", _KNOWN)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise invalid("messages", "must be a list with at least one message")
        is_stream, model = checked_flag(body, "stream"), checked_model(body)
        reading = read_messages(messages, limits)
        read_fields(reading, body, NOT_READ)
        return ChatRequest(
            raw=raw,
            body=body,
            messages=tuple(reading.messages),
            contents=tuple(reading.contents),
            system="\n".join(reading.system),
            unjudged=tuple(dict.fromkeys(reading.unjudged)),
            model=model,
            is_stream=is_stream,
            end_user=string(body.get("user")),
        )

    def read_answer(self, raw: str | bytes) -> Completion | None:
        """Read one answer."""
        return self.read(raw)

    def event_reader(self) -> ChatWire:
        """Return the reader of chunks: they need no memory."""
        return self

    def read(self, data: str | bytes) -> Completion | None:
        """Read one answer or chunk."""
        body = parsed(data)
        if body is None:
            return None
        if body.get("error"):
            return Completion(is_error=True)
        choices, created = body.get("choices"), body.get("created")
        if not isinstance(choices, list):
            return None
        return Completion(
            choices=tuple(_choice_texts(choices)),
            id=string(body.get("id")),
            model=string(body.get("model")),
            created=created if isinstance(created, int) else 0,
            is_last=any(each.get("finish_reason") is not None for each in objects(choices)),
        )

    def refusal(self, request: GuardedRequest, refusal: Refusal) -> Mapping[str, object]:
        """Return a completion that refuses, with the finish reason clients know for it."""
        assert isinstance(request, ChatRequest)
        return {
            **_envelope(refusal, "chat.completion"),
            "choices": [
                {
                    "index": index,
                    "message": {"role": "assistant", "content": refusal.text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": CONTENT_FILTER,
                }
                for index in range(request.choice_count)
            ],
            "usage": _NO_USAGE,
        }

    def refusal_events(self, request: GuardedRequest, refusal: Refusal) -> Iterator[bytes]:
        """Yield the chunks that end a stream with a refusal."""
        assert isinstance(request, ChatRequest)
        fields = _envelope(refusal, "chat.completion.chunk")
        role = {} if refusal.begun else {"role": "assistant"}
        text = f"\n\n{refusal.text}" if refusal.sent else refusal.text
        deltas: tuple[tuple[Mapping[str, object], str | None], ...] = (
            ({**role, "content": text}, None),
            ({}, CONTENT_FILTER),
        )
        for index in range(request.choice_count):
            for delta, reason in deltas:
                choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
                yield sse_event(json.dumps({**fields, "choices": [choice]}))
        if request.wants_usage:
            yield sse_event(json.dumps({**fields, "choices": [], "usage": _NO_USAGE}))
        yield DONE

    def event(self, data: str) -> bytes:
        """Return one chunk as it came."""
        return sse_event(data)

    def end(self) -> bytes:
        """Return the end mark."""
        return DONE

    def error_body(self, error: ApiError) -> Mapping[str, object]:
        """Return an error in OpenAI's shape."""
        return openai_error(error)

    def error_events(self, error: ApiError) -> Iterator[bytes]:
        """Yield an error, once the status can no longer change, and the end mark."""
        yield sse_event(json.dumps(self.error_body(error)))
        yield DONE


def read_messages(messages: Sequence[object], limits: Limits) -> Reading:
    """Read the messages of a conversation, wherever they came with."""
    reading = Reading(limits=limits)
    _read_messages(reading, messages)
    return reading


def read_fields(reading: Reading, body: Mapping[str, object], skipped: frozenset[str]) -> None:
    """Read what a model may see beside the messages."""
    for name, value in fields_of(body, skipped):
        if name in ITEMISED and isinstance(value, list):
            for at, item in enumerate(value):
                reading.content(item, (name, at))
        else:
            reading.content(value, (name,))


def _read_messages(reading: Reading, messages: Sequence[object]) -> None:
    """Read a conversation.

    A last message without text, such as an image alone, still begins a turn: it becomes an empty
    user message.
    """
    check_count(messages, "messages", reading.limits)
    for at, item in enumerate(messages):
        before = len(reading.messages)
        role = read_message(reading, item, ("messages", at), is_last=at == len(messages) - 1)
    has_text = len(reading.messages) > before
    if not has_text and role not in (Role.ASSISTANT, Role.SYSTEM):
        reading.messages.append(ComparableMessage.of(Role.USER, ""))


def read_message(reading: Reading, item: object, place: Place, *, is_last: bool) -> Role:
    """Read one message: its own words, then everything else it carries as untrusted content.

    Before a last assistant message the rest comes first, since that message is the beginning of
    the answer and ends the request.
    """
    where = name_of(place)
    if not isinstance(item, dict):
        raise invalid(where, "must be an object with role and content")
    check_keys(item, where, _KNOWN)
    if not isinstance(item.get("role"), str):
        raise invalid(f"{where}.role", "must be a string")
    if not any(name in item for name in ("content", "tool_calls", "function_call", "audio")):
        raise invalid(f"{where}.content", "is missing")
    role = role_in(item)
    own, others = parts_in(item.get("content"), (*place, "content"))
    refusal = item.get("refusal")
    if not own and isinstance(refusal, str):
        own = [refusal]
    text = "\n".join(own)
    if role in (Role.TOOL, Role.SYSTEM):
        rest = [reading.prose(part, where) for part, where in others]
        text = "\n".join(part for part in (text, *rest) if part)
        others = []
    is_prefill = is_last and role is Role.ASSISTANT
    if not is_prefill:
        reading.message(role, text, (*place, "content"))
    for part, at in others:
        reading.side_text(part, at)
    _read_rest(reading, item, place, role, text)
    if is_prefill:
        reading.message(role, text, (*place, "content"))
    return role


def _read_rest(
    reading: Reading, item: Mapping[str, object], place: Place, role: Role, text: str
) -> None:
    if role is Role.ASSISTANT and (thinking := thinking_in(text)):
        origin = f"{name_of(place)}.content<think>"
        reading.message(Role.TOOL, thinking, (*place, "content"), origin=origin)
    for name, value in fields_of(item, _PLAIN_FIELDS):
        if name == "refusal" and value == text:
            continue
        if isinstance(value, list):
            for at, part in enumerate(value):
                reading.side_text(part, (*place, name, at))
        else:
            reading.side_text(value, (*place, name))


def parts_in(content: object, place: Place) -> tuple[list[str], list[tuple[object, Place]]]:
    """Return the speaker's own words, and the parts that are something else."""
    if content is None:
        return [], []
    if isinstance(content, str):
        return [content], []
    if not isinstance(content, list):
        raise invalid(name_of(place), "must be a string or a list of parts")
    own: list[str] = []
    others: list[tuple[object, Place]] = []
    for at, part in enumerate(content):
        where = (*place, at)
        if isinstance(part, str):
            own.append(part)
            continue
        if not isinstance(part, dict):
            raise invalid(name_of(where), "must be text or an object")
        check_keys(part, name_of(where), _KNOWN)
        words = part.get(_OWN_PARTS.get(str(part.get("type")), ""))
        rest: object = part
        if isinstance(words, str):
            own.append(words)
            rest = {key: value for key, value in part.items() if value is not words}
        others.append((rest, where))
    return own, others


def role_in(item: object) -> Role:
    """Return the role; an unknown one counts as a tool's, so that its text is judged."""
    name = item.get("role") if isinstance(item, dict) else None
    try:
        return role_of(name)
    except InputError:
        return Role.TOOL


def _envelope(refusal: Refusal, kind: str) -> dict[str, object]:
    """Return the fields every completion and every chunk begins with."""
    return {
        "id": refusal.id,
        "object": kind,
        "created": refusal.created,
        "model": refusal.model,
    }


def _choice_texts(choices: list[object]) -> Iterator[ChoiceText]:
    for at, choice in enumerate(choices):
        if not isinstance(choice, Mapping):
            continue
        message = mapping(choice.get("message") or choice.get("delta"))
        index = choice.get("index")
        text = shown_in(message.get("content")) or string(message.get("refusal"))
        yield ChoiceText(
            index=index if isinstance(index, int) else at,
            text=text,
            shown="".join(shown_in(message.get(name)) for name in _SHOWN_FIELDS),
        )


def shown_in(value: object) -> str:
    """Return the text that a part of an answer shows, whatever its form."""
    if isinstance(value, list):
        return "".join(shown_in(part) for part in value)
    if isinstance(value, Mapping):
        texts = (string(value.get(name)) for name in _SHOWN_TEXTS)
        return "".join(texts) + shown_in(value.get("function")) + shown_in(value.get("custom"))
    return string(value)
