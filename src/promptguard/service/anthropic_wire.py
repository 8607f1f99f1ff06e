"""Anthropic's Messages format: blocks in, blocks out, events that bear their type."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from promptguard.conversation import Role
from promptguard.service.body import (
    Limits,
    Place,
    Reading,
    checked_model,
    invalid,
    read_json,
)
from promptguard.service.errors import ApiError
from promptguard.service.openai_wire import (
    checked_message,
    parts_in,
    read_each,
    read_fields,
    read_rest,
    role_in,
)
from promptguard.service.wire import (
    AnswerPart,
    ChoiceText,
    GuardedRequest,
    Refusal,
    mapping,
    named_event,
    objects,
    parsed,
    passed_on,
    string,
)

_KNOWN = frozenset({"messages", "model", "stream", "system", "role", "content", "type", "text"})
NOT_READ = frozenset(
    {"messages", "system", "model", "stream", "metadata", "stop_sequences", "tool_choice"}
)
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
# Where the blocks and deltas of an answer keep what they show.
_SHOWN = ("text", "thinking", "partial_json")
_REFUSED = "refusal"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesRequest(GuardedRequest):
    """A request of the Messages API."""

    def noticed(self, body: Mapping[str, object], notice: str) -> Mapping[str, object]:
        """Return the body with a notice after the developer's system prompt."""
        system = body.get("system")
        if isinstance(system, list):
            return {**body, "system": [*system, {"type": "text", "text": notice}]}
        own = string(system)
        return {**body, "system": f"{own}\n\n{notice}" if own else notice}


class MessagesWire:
    """`POST /v1/messages`."""

    path = "/messages"
    operation = "messages"

    def __init__(self) -> None:
        self._blocks = 0
        self._open: int | None = None

    def new_id(self) -> str:
        """Return an id for a message of our own."""
        return f"msg_pg{secrets.token_hex(12)}"

    def read_request(self, raw: bytes, limits: Limits) -> MessagesRequest:
        """Read a request."""
        body = read_json(raw, _KNOWN)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise invalid("messages", "must be a list with at least one message")
        reading = Reading(limits=limits)
        own, others = parts_in(body.get("system"), ("system",))
        rest = [reading.prose(part, place) for part, place in others]
        system = "\n".join(text for text in (*own, *rest) if text)
        reading.message(Role.SYSTEM, system, ("system",))
        read_each(reading, messages, _read_message)
        read_fields(reading, body, NOT_READ)
        user = mapping(body.get("metadata")).get("user_id")
        return MessagesRequest.of(raw, body, reading, model=checked_model(body), end_user=user)

    def read_answer(self, raw: bytes) -> AnswerPart | None:
        """Read a whole message."""
        body = parsed(raw)
        if body is None:
            return None
        if body.get("type") == "error":
            return AnswerPart(is_error=True)
        if not isinstance(body.get("content"), list):
            return None
        blocks = objects(body.get("content"))
        text = "\n".join(string(b.get("text")) for b in blocks if b.get("type") == "text")
        shown = "\n".join(_shown(block) for block in blocks)
        return AnswerPart(
            choices=(ChoiceText(index=0, text=text, shown=shown),),
            id=string(body.get("id")),
            model=string(body.get("model")),
            is_last=True,
        )

    def event_reader(self) -> MessagesReader:
        """Return a reader of one message's events."""
        return MessagesReader()

    def refusal(self, request: GuardedRequest, refusal: Refusal) -> Mapping[str, object]:
        """Return a message that refuses, with the stop reason clients know for it."""
        del request
        return {
            **_head(refusal),
            "content": [{"type": "text", "text": refusal.text}],
            "stop_reason": _REFUSED,
        }

    def refusal_events(self, request: GuardedRequest, refusal: Refusal) -> Iterator[bytes]:
        """Yield one more block that refuses, and the end of the message."""
        del request
        if not refusal.begun:
            yield named_event({"type": "message_start", "message": _head(refusal)})
        # Clients put a message together block by block, so an open block is closed first.
        if self._open is not None:
            yield named_event({"type": "content_block_stop", "index": self._open})
        at = {"index": self._blocks}
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": refusal.text}
        ended = {"stop_reason": _REFUSED, "stop_sequence": None}
        yield named_event({"type": "content_block_start", **at, "content_block": block})
        yield named_event({"type": "content_block_delta", **at, "delta": delta})
        yield named_event({"type": "content_block_stop", **at})
        yield named_event({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 0}})
        yield named_event({"type": "message_stop"})

    def event(self, data: str) -> bytes:
        """Return one event as it came; notes which block the client has open."""
        body = parsed(data) or {}
        index = body.get("index")
        if body.get("type") == "content_block_start" and isinstance(index, int):
            self._open, self._blocks = index, index + 1
        elif body.get("type") == "content_block_stop":
            self._open = None
        return passed_on(data)

    def end(self) -> bytes:
        """Return nothing: the last event is the end."""
        return b""

    def error_body(self, error: ApiError) -> Mapping[str, object]:
        """Return an error in Anthropic's shape; `code` and `param` are our own additions."""
        kind = _ERROR_TYPES.get(error.status_code, "api_error")
        details = {"message": str(error.detail), "code": error.code, "param": error.param}
        return {"type": "error", "error": {"type": kind, **details}}

    def error_events(self, error: ApiError) -> Iterator[bytes]:
        """Yield an error event, which ends a message."""
        yield named_event(self.error_body(error))


class MessagesReader:
    """Reads the events of one message."""

    def __init__(self) -> None:
        self._text_block: object = None

    def read(self, data: str) -> AnswerPart | None:
        """Return what an event brings."""
        body = parsed(data)
        kind = string(body.get("type")) if body is not None else ""
        if body is None or not kind:
            return None
        if kind == "error":
            return AnswerPart(is_error=True)
        if kind == "message_start":
            message = mapping(body.get("message"))
            return AnswerPart(id=string(message.get("id")), model=string(message.get("model")))
        if kind == "message_stop":
            return AnswerPart(is_last=True)
        part = mapping(body.get("delta") or body.get("content_block"))
        shown = _shown(part)
        if not shown:
            return AnswerPart()
        text = string(part.get("text"))
        # Two blocks of text must not be read as one word at the seam.
        if text and self._is_next_block(body):
            text, shown = f"\n{text}", f"\n{shown}"
        return AnswerPart(choices=(ChoiceText(index=0, text=text, shown=shown),))

    def _is_next_block(self, body: Mapping[str, object]) -> bool:
        before, self._text_block = self._text_block, body.get("index")
        return before is not None and before != self._text_block


def _head(refusal: Refusal) -> dict[str, object]:
    return {
        "id": refusal.id,
        "type": "message",
        "role": "assistant",
        "model": refusal.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def _shown(block: Mapping[str, object]) -> str:
    texts = "".join(string(block.get(name)) for name in _SHOWN)
    given = block.get("input")
    return texts + (json.dumps(given, ensure_ascii=False) if given else "")


def _read_message(reading: Reading, item: object, place: Place, *, is_last: bool) -> Role:
    """Read one message: its own words, then its other blocks as untrusted content."""
    message = checked_message(item, place, _KNOWN)
    role, inside = role_in(message), (*place, "content")
    own, others = parts_in(message.get("content"), inside)
    text = "\n".join(own)
    is_prefill = is_last and role is Role.ASSISTANT
    # The beginning of the answer ends the request, so the rest of the message is read before it.
    if not is_prefill:
        reading.message(role, text, inside)
    for block, at in others:
        _read_block(reading, block, at)
    read_rest(reading, message, place, role, text)
    if is_prefill:
        reading.message(role, text, inside)
    return role


def _read_block(reading: Reading, block: object, place: Place) -> None:
    fields = mapping(block)
    if fields.get("type") != "tool_result":
        # A signature proves where thinking comes from; no model reads it.
        read = {name: value for name, value in fields.items() if name != "signature"}
        reading.side_text(read, place)
        return
    own, others = parts_in(fields.get("content"), (*place, "content"))
    texts = [*own, *(reading.prose(part, at) for part, at in others)]
    reading.message(Role.TOOL, "\n".join(text for text in texts if text), (*place, "content"))
