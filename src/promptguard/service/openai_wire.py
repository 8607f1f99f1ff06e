"""OpenAI's chat completion format: requests, the upstream's answers, and the guard's own.

Accepted requests and answers are passed on byte by byte, unless a notice is added to a request
or a poisoned content is taken out of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from promptguard.conversation import ROLES, ComparableMessage, Role, thinking_in
from promptguard.service.body import (
    Limits,
    Place,
    Reading,
    check_count,
    checked_object,
    invalid,
    name_of,
)
from promptguard.service.wire import (
    CONTENT_FILTER,
    DONE,
    ChunkWire,
    Refusal,
    mapping,
    sse_event,
    string,
)
from promptguard.turns.exchanges import with_notice

# Something in a message, and where it stands.
Part = tuple[object, Place]
# Reads one message, the last of the request or not, and returns its role.
ReadMessage = Callable[[Reading, object, Place, bool], Role]
_KNOWN = frozenset(
    {"messages", "model", "stream", "role", "content", "tool_calls", "text", "type", "refusal"}
)
# Kinds of parts that are the speaker's own words, and where they keep them.
_OWN_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
# Fields of a message that say who and which, and carry no text.
_PLAIN_FIELDS = frozenset({"role", "content", "tool_call_id", "id", "type", "index", "status"})
# Fields of the body that no model reads: they steer the server or are kept for its operator.
_NOT_READ = frozenset(
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


class ChatWire(ChunkWire):
    """`POST /v1/chat/completions`."""

    path = "/chat/completions"
    known = _KNOWN
    not_read = _NOT_READ
    mark = "chatcmpl-pg"

    def read_words(self, reading: Reading, body: Mapping[str, object]) -> None:
        """Read the messages."""
        read_each(reading, body.get("messages"), read_message)

    def noticed(self, body: Mapping[str, object], notice: str) -> Mapping[str, object]:
        """Return the body with one more system message, after the developer's own."""
        messages = body["messages"]
        assert isinstance(messages, list)
        return {**body, "messages": with_notice(messages, notice)}

    def texts_in(self, choice: Mapping[str, object]) -> tuple[str, str]:
        """Read a choice's message, or what a chunk adds to it."""
        message = mapping(choice.get("message") or choice.get("delta"))
        text = shown_in(message.get("content")) or string(message.get("refusal"))
        return text, "".join(shown_in(message.get(name)) for name in _SHOWN_FIELDS)

    def refusal(self, refusal: Refusal) -> Mapping[str, object]:
        """Return a completion that refuses, with the finish reason clients know for it."""
        message = {"role": "assistant", "content": refusal.text, "refusal": None}
        ended = {"message": message, "logprobs": None, "finish_reason": CONTENT_FILTER}
        count = asked_choices(refusal.asked.body)
        return {
            **self.envelope(refusal, "chat.completion"),
            "choices": [{"index": index, **ended} for index in range(count)],
            "usage": _NO_USAGE,
        }

    def refusal_events(self, refusal: Refusal) -> Iterator[bytes]:
        """Yield the chunks that end a stream with a refusal."""
        fields, body = self.envelope(refusal, "chat.completion.chunk"), refusal.asked.body
        role = {} if refusal.begun else {"role": "assistant"}
        parts: tuple[tuple[Mapping[str, object], str | None], ...] = (
            ({**role, "content": refusal.appended}, None),
            ({}, CONTENT_FILTER),
        )
        for index in range(asked_choices(body)):
            for delta, reason in parts:
                choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
                yield sse_event(json.dumps({**fields, "choices": [choice]}))
        if mapping(body.get("stream_options")).get("include_usage") is True:
            yield sse_event(json.dumps({**fields, "choices": [], "usage": _NO_USAGE}))
        yield DONE


def asked_choices(body: Mapping[str, object]) -> int:
    """Return how many answers `n` asks for; one where the field is odd."""
    n = body.get("n")
    return n if isinstance(n, int) and 1 <= n <= _MAX_CHOICES else 1


def read_messages(messages: Sequence[object], limits: Limits) -> Reading:
    """Read the messages of a conversation, wherever they came with."""
    reading = Reading(limits=limits)
    read_each(reading, messages, read_message)
    return reading


def read_each(reading: Reading, messages: object, read: ReadMessage) -> None:
    """Read a conversation, one message by `read` after the other.

    A last message without text, such as an image alone, still begins a turn: it becomes an empty
    user message.
    """
    if not isinstance(messages, list) or not messages:
        raise invalid("messages", "must be a list with at least one message")
    check_count(messages, "messages", reading.limits)
    for at, item in enumerate(messages):
        before = len(reading.messages)
        role = read(reading, item, ("messages", at), at == len(messages) - 1)
    end_with_turn(reading, role, before)


def end_with_turn(reading: Reading, role: Role, before: int) -> None:
    """Begin a turn for a last message of `role` that added no text to the `before` messages."""
    has_text = len(reading.messages) > before
    if not has_text and role not in (Role.ASSISTANT, Role.SYSTEM):
        reading.messages.append(ComparableMessage.of(Role.USER, ""))


def checked_message(item: object, place: Place, known: frozenset[str]) -> dict[str, object]:
    """Return a message that is an object with a role."""
    message = checked_object(item, place, known, "must be an object with role and content")
    if not isinstance(message.get("role"), str):
        raise invalid(f"{name_of(place)}.role", "must be a string")
    return message


def read_message(reading: Reading, item: object, place: Place, is_last: bool) -> Role:
    """Read one message: its own words, then everything else it carries as untrusted content."""
    message = checked_message(item, place, _KNOWN)
    if not any(name in message for name in ("content", "tool_calls", "function_call", "audio")):
        raise invalid(f"{name_of(place)}.content", "is missing")
    own, others = parts_in(message.get("content"), (*place, "content"))
    refusal = message.get("refusal")
    if not own and isinstance(refusal, str):
        own = [refusal]
    text = "\n".join(own)
    # These are not divided: all of a tool's result is content, all of a prompt the developer's.
    if role_in(message) in (Role.TOOL, Role.SYSTEM):
        text, others = whole_text(reading, [text], others), []
    return read_said(reading, message, place, text, others, is_last=is_last)


def read_said(
    reading: Reading,
    message: Mapping[str, object],
    place: Place,
    text: str,
    others: Sequence[Part],
    *,
    is_last: bool,
    read_part: Callable[[Reading, object, Place], None] = Reading.side_text,
) -> Role:
    """Read a message's own words, `text`; then as content its `others` and what is beside them.

    Before a last assistant message the rest comes first, since that message is the beginning of
    the answer and ends the request.
    """
    role, inside = role_in(message), (*place, "content")
    is_prefill = is_last and role is Role.ASSISTANT
    if not is_prefill:
        reading.message(role, text, inside)
    for part, at in others:
        read_part(reading, part, at)
    if role is Role.ASSISTANT and (thinking := thinking_in(text)):
        reading.message(Role.TOOL, thinking, inside, origin=f"{name_of(inside)}<think>")
    for name, value in message.items():
        # It was taken for the message's own words above.
        if name in _PLAIN_FIELDS or (name == "refusal" and value == text):
            continue
        if isinstance(value, list):
            for number, part in enumerate(value):
                reading.side_text(part, (*place, name, number))
        else:
            reading.side_text(value, (*place, name))
    if is_prefill:
        reading.message(role, text, inside)
    return role


def whole_text(reading: Reading, own: Sequence[str], others: Sequence[Part]) -> str:
    """Return a content that is not divided: its own words, then all sentences in the others."""
    texts = (*own, *(reading.prose(part, at) for part, at in others))
    return "\n".join(text for text in texts if text)


def parts_in(content: object, place: Place) -> tuple[list[str], list[Part]]:
    """Return the speaker's own words, and the parts that are something else."""
    if content is None:
        return [], []
    if isinstance(content, str):
        return [content], []
    if not isinstance(content, list):
        raise invalid(name_of(place), "must be a string or a list of parts")
    own: list[str] = []
    others: list[Part] = []
    for at, part in enumerate(content):
        where = (*place, at)
        if isinstance(part, str):
            own.append(part)
            continue
        fields = checked_object(part, where, _KNOWN, "must be text or an object")
        words = fields.get(_OWN_PARTS.get(str(fields.get("type")), ""))
        rest: object = fields
        if isinstance(words, str):
            own.append(words)
            # Further fields of a text part, such as annotations, are read as content.
            rest = {key: value for key, value in fields.items() if value is not words}
        others.append((rest, where))
    return own, others


def role_in(message: Mapping[str, object]) -> Role:
    """Return the role; an unknown one counts as a tool's, so that its text is judged."""
    return ROLES.get(str(message["role"]).strip().lower(), Role.TOOL)


def shown_in(value: object) -> str:
    """Return the text that a part of an answer shows, whatever its form."""
    if isinstance(value, list):
        return "".join(shown_in(part) for part in value)
    if isinstance(value, Mapping):
        texts = [value.get(name) for name in _SHOWN_TEXTS]
        own = "".join(
            text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
            for text in texts
            if isinstance(text, (str, Mapping))
        )
        return own + shown_in(value.get("function")) + shown_in(value.get("custom"))
    return value if isinstance(value, str) else ""
