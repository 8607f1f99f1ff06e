"""Anthropic's Messages format: blocks in, blocks out, events that bear their type."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from promptguard.conversation import Role
from promptguard.service.body import Place, Reading
from promptguard.service.errors import ApiError
from promptguard.service.openai_wire import (
    checked_message,
    parts_in,
    read_each,
    read_said,
    whole_text,
)
from promptguard.service.wire import (
    AnswerPart,
    ChoiceText,
    Refusal,
    Wire,
    mapping,
    named_event,
    objects,
    string,
)

_KNOWN = frozenset({"messages", "model", "stream", "system", "role", "content", "type", "text"})
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
# A signature proves where thinking comes from; no model reads it.
_SIGNATURE = frozenset({"signature"})
# What a tool's result has beside this is content of its own.
_RESULT = frozenset({"type", "content", "tool_use_id"})


class MessagesWire(Wire):
    """`POST /v1/messages`."""

    path = "/messages"
    known = _KNOWN
    not_read = frozenset(
        {"messages", "system", "model", "stream", "metadata", "stop_sequences", "tool_choice"}
    )
    mark = "msg_pg"

    def __init__(self) -> None:
        self._text_block: object = None
        self._blocks = 0
        self._open: int | None = None

    def read_words(self, reading: Reading, body: Mapping[str, object]) -> None:
        """Read the system prompt and the messages."""
        system = whole_text(reading, *parts_in(body.get("system"), ("system",)))
        reading.message(Role.SYSTEM, system, ("system",))
        read_each(reading, body.get("messages"), _read_message)

    def end_user(self, body: Mapping[str, object]) -> object:
        """Return whose conversation it is."""
        return mapping(body.get("metadata")).get("user_id")

    def noticed(self, body: Mapping[str, object], notice: str) -> Mapping[str, object]:
        """Return the body with a notice after the developer's system prompt."""
        system = body.get("system")
        if isinstance(system, list):
            return {**body, "system": [*system, {"type": "text", "text": notice}]}
        return {**body, "system": "\n\n".join(filter(None, (string(system), notice)))}

    def answer_in(self, body: Mapping[str, object]) -> AnswerPart | None:
        """Take a whole message apart."""
        if body.get("type") == "error":
            return AnswerPart(is_error=True)
        if not isinstance(body.get("content"), list):
            return None
        blocks = objects(body.get("content"))
        text = "\n".join(string(b.get("text")) for b in blocks if b.get("type") == "text")
        shown = "\n".join(_shown(block) for block in blocks)
        choice = ChoiceText(index=0, text=text, shown=shown)
        return replace(_named(body), choices=(choice,), is_last=True)

    def event_in(self, body: Mapping[str, object]) -> AnswerPart | None:
        """Take an event apart."""
        kind = string(body.get("type"))
        if not kind:
            return None
        if kind == "error":
            return AnswerPart(is_error=True)
        if kind == "message_start":
            return _named(mapping(body.get("message")))
        if kind == "message_stop":
            return AnswerPart(is_last=True)
        part = mapping(body.get("delta") or body.get("content_block"))
        text, shown = string(part.get("text")), _shown(part)
        if text:
            before, self._text_block = self._text_block, body.get("index")
            # Two blocks of text must not be read as one word at the seam.
            if before not in (None, self._text_block):
                text, shown = f"\n{text}", f"\n{shown}"
        choices = (ChoiceText(index=0, text=text, shown=shown),) if shown else ()
        return AnswerPart(choices=choices)

    def refusal(self, refusal: Refusal) -> Mapping[str, object]:
        """Return a message that refuses, with the stop reason clients know for it."""
        content = [{"type": "text", "text": refusal.text}]
        return {**_head(refusal), "content": content, "stop_reason": _REFUSED}

    def refusal_events(self, refusal: Refusal) -> Iterator[bytes]:
        """Yield one more block that refuses, and the end of the message."""
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

    def note_sent(self, event: Mapping[str, object]) -> None:
        """Note which block the client has open."""
        index = event.get("index")
        if event.get("type") == "content_block_start" and isinstance(index, int):
            self._open, self._blocks = index, index + 1
        elif event.get("type") == "content_block_stop":
            self._open = None

    def error_body(self, error: ApiError) -> Mapping[str, object]:
        """Return an error in Anthropic's shape; `code` and `param` are our own additions."""
        kind = _ERROR_TYPES.get(error.status_code, "api_error")
        details = {"message": str(error.detail), "code": error.code, "param": error.param}
        return {"type": "error", "error": {"type": kind, **details}}


def _named(message: Mapping[str, object]) -> AnswerPart:
    return AnswerPart(id=string(message.get("id")), model=string(message.get("model")))


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


def _read_message(reading: Reading, item: object, place: Place, is_last: bool) -> Role:
    """Read one message: its own words, then its other blocks as untrusted content."""
    message = checked_message(item, place, _KNOWN)
    own, others = parts_in(message.get("content"), (*place, "content"))
    text = "\n".join(own)
    return read_said(reading, message, place, text, others, is_last=is_last, read_part=_read_block)


def _read_block(reading: Reading, block: object, place: Place) -> None:
    fields, inside, read = mapping(block), (*place, "content"), _SIGNATURE
    if fields.get("type") == "tool_result":
        text = whole_text(reading, *parts_in(fields.get("content"), inside))
        reading.message(Role.TOOL, text, inside)
        read = _RESULT
    reading.side_text({k: value for k, value in fields.items() if k not in read}, place)
