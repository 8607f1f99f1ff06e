"""OpenAI's Responses format: items in, items out, events that bear their type."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from promptguard.conversation import Role
from promptguard.service.body import (
    Place,
    Reading,
    check_count,
    checked_object,
    invalid,
    prose_in,
)
from promptguard.service.errors import ApiError
from promptguard.service.openai_wire import (
    Part,
    end_with_turn,
    parts_in,
    read_message,
    whole_text,
)
from promptguard.service.wire import (
    CONTENT_FILTER,
    PREVIOUS,
    AnswerPart,
    ChoiceText,
    Refusal,
    Wire,
    mapping,
    named_event,
    objects,
    string,
)

_KNOWN = frozenset(
    {"input", "instructions", "model", "stream", "type", "output", "content", "role"}
)
_NOT_READ = frozenset(
    {
        "input",
        "instructions",
        "model",
        "stream",
        "stream_options",
        "user",
        "metadata",
        "include",
        "tool_choice",
        "safety_identifier",
        "prompt_cache_key",
        "conversation",
        PREVIOUS,
    }
)
_ENDINGS = ("response.completed", "response.incomplete")
# What a tool's output has beside this is content of its own.
_OUTPUT = frozenset({"type", "output", "id", "call_id", "status"})
_FAILURES = ("error", "response.failed")
# Events that add to the answer proper; other deltas are shown beside it.
_ANSWERING = ("response.output_text.delta", "response.refusal.delta")


class ResponsesWire(Wire):
    """`POST /v1/responses`."""

    path = "/responses"
    field = "input"
    known = _KNOWN
    not_read = _NOT_READ
    mark = "resp_pg"
    needs_model = False

    def __init__(self) -> None:
        # By item: what one has shown is no proof for another.
        self._shown_chars: Counter[int] = Counter()
        self._output_index: object = None
        self._sequence = -1
        self._sent: dict[int, _SentItem] = {}

    def read_words(self, reading: Reading, body: Mapping[str, object]) -> None:
        """Read the instructions and `input`, a text or a list of items."""
        reading.message(Role.SYSTEM, string(body.get("instructions")), ("instructions",))
        given = body.get("input", "")
        if isinstance(given, str):
            reading.message(Role.USER, given, ("input",))
            return
        if not isinstance(given, list):
            raise invalid("input", "must be a text or a list of items")
        check_count(given, "input", reading.limits)
        _read_items(reading, given)

    def continued(self, body: Mapping[str, object]) -> str:
        """Return the response before, else the conversation."""
        conversation = body.get("conversation")
        before = string(body.get(PREVIOUS)) or string(conversation)
        return before or string(mapping(conversation).get("id"))

    def noticed(self, body: Mapping[str, object], notice: str) -> Mapping[str, object]:
        """Return the body with a notice after the developer's instructions."""
        own = string(body.get("instructions"))
        return {**body, "instructions": "\n\n".join(filter(None, (own, notice)))}

    def answer_in(self, body: Mapping[str, object]) -> AnswerPart | None:
        """Take a whole response apart."""
        return _completion(body) if isinstance(body.get("output"), list) else None

    def event_in(self, body: Mapping[str, object]) -> AnswerPart | None:
        """Take an event apart.

        The last events repeat the whole text. What they hold beyond the deltas is shown as well.
        """
        kind, response = string(body.get("type")), mapping(body.get("response"))
        if not kind:
            return None
        if kind in _FAILURES:
            return AnswerPart(is_error=True)
        if kind in _ENDINGS:
            # An upstream may send an item without any delta; then the last event brings it.
            items = enumerate(objects(response.get("output")))
            new = [item for at, item in items if len(_shown(item)) > self._shown_chars[at]]
            return _completion({**response, "output": new})
        delta = string(body.get("delta"))
        if not delta:
            if kind == "response.created":
                return replace(_completion(response), is_last=False)
            return self._beside(kind, body)
        self._shown_chars[_index(body)] += len(delta)
        if kind not in _ANSWERING:
            return AnswerPart(choices=(ChoiceText(index=0, text="", shown=delta),))
        before, self._output_index = self._output_index, body.get("output_index")
        # Two messages of one response must not be read as one word at the seam.
        text = delta if before in (None, self._output_index) else f"\n{delta}"
        return AnswerPart(choices=(ChoiceText(index=0, text=text, shown=text),))

    def _beside(self, kind: str, body: Mapping[str, object]) -> AnswerPart:
        """Read an event that opens or closes an item; what it repeats is not shown twice."""
        item = mapping(body.get("item"))
        shown = _shown(item) or "".join(string(body.get(name)) for name in ("arguments", "text"))
        index = _index(body)
        if not shown or (not kind.endswith(".added") and len(shown) <= self._shown_chars[index]):
            return AnswerPart()
        self._shown_chars[index] += len(shown)
        return AnswerPart(choices=(ChoiceText(index=0, text="", shown=shown),))

    def refusal(self, refusal: Refusal) -> Mapping[str, object]:
        """Return a response that refuses; `incomplete_details` says why."""
        return self._response(refusal, [_message(refusal.text)])

    def _response(
        self, refusal: Refusal, output: Sequence[Mapping[str, object]]
    ) -> dict[str, object]:
        return {
            "id": refusal.id,
            "object": "response",
            "created_at": refusal.created,
            "status": "completed",
            "error": None,
            "incomplete_details": {"reason": CONTENT_FILTER},
            "instructions": None,
            "metadata": {},
            "model": refusal.model,
            "output": list(output),
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": {
                "input_tokens": 0,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 0,
            },
        }

    def refusal_events(self, refusal: Refusal) -> Iterator[bytes]:
        """Yield one more message that refuses, and the end of the response.

        Items that the client has open are closed first, with what it has got of them.
        """
        message = _message(refusal.text)
        # The last event repeats the whole answer, so it must hold what the client has got already.
        whole = self._response(refusal, [*(i.closed() for i in self._sent.values()), message])
        if not refusal.begun:
            begun = {**whole, "status": "in_progress", "output": []}
            yield self._named("response.created", response=begun)
            yield self._named("response.in_progress", response=begun)
        for index, item in self._sent.items():
            # OpenAI's client checks that every item it was shown is finished.
            if item.is_open:
                closed = item.closed()
                yield self._named("response.output_item.done", output_index=index, item=closed)
        at = {"output_index": max(self._sent, default=-1) + 1}
        yield from self._spoken(message, at, refusal.text)
        yield self._named("response.completed", response=whole)

    def _spoken(
        self, message: Mapping[str, object], at: Mapping[str, object], text: str
    ) -> Iterator[bytes]:
        """Yield the events of one message."""
        part = objects(message["content"])[0]
        within = {**at, "item_id": message["id"], "content_index": 0}
        opened = {**message, "status": "in_progress", "content": []}
        yield self._named("response.output_item.added", **at, item=opened)
        yield self._named("response.content_part.added", **within, part={**part, "text": ""})
        yield self._named("response.output_text.delta", **within, logprobs=[], delta=text)
        yield self._named("response.output_text.done", **within, logprobs=[], text=text)
        yield self._named("response.content_part.done", **within, part=part)
        yield self._named("response.output_item.done", **at, item=message)

    def note_sent(self, event: Mapping[str, object]) -> None:
        """Note what the client has got."""
        number, index = event.get("sequence_number"), event.get("output_index")
        # Our own events go on counting where the upstream's stopped.
        self._sequence = number if isinstance(number, int) else self._sequence + 1
        kind, item = string(event.get("type")), mapping(event.get("item"))
        if not isinstance(index, int):
            return
        if kind in ("response.output_item.added", "response.output_item.done"):
            self._sent[index] = _SentItem(item=item, is_open=kind.endswith(".added"))
        elif index in self._sent:
            self._sent[index].texts.append(string(event.get("delta")))

    def error_event(self, error: ApiError) -> bytes:
        """Return an error event, which ends a response."""
        return self._named("error", code=error.code, message=str(error.detail), param=error.param)

    def _named(self, kind: str, **fields: object) -> bytes:
        self._sequence += 1
        return named_event({"type": kind, "sequence_number": self._sequence, **fields})


@dataclass(slots=True, kw_only=True)
class _SentItem:
    """An item that the client has got, or the beginning of one."""

    item: Mapping[str, object]
    texts: list[str] = field(default_factory=list)
    is_open: bool = True

    def closed(self) -> Mapping[str, object]:
        """Return the item as the client has it."""
        if not self.is_open:
            return self.item
        text = "".join(self.texts)
        if self.item.get("type") == "message":
            part = {"type": "output_text", "text": text, "annotations": []}
            return {**self.item, "status": "incomplete", "content": [part]}
        arguments = {"arguments": text} if "arguments" in self.item else {}
        return {**self.item, "status": "incomplete", **arguments}


def _index(body: Mapping[str, object]) -> int:
    """Return which item an event belongs to, the first where it does not say."""
    index = body.get("output_index")
    return index if isinstance(index, int) else 0


def _completion(response: Mapping[str, object]) -> AnswerPart:
    items = objects(response.get("output"))
    created = response.get("created_at")
    text = "\n".join(_spoken(item) for item in items if item.get("type") == "message")
    shown = "\n".join(_shown(item) for item in items)
    return AnswerPart(
        choices=(ChoiceText(index=0, text=text, shown=shown),) if items else (),
        id=string(response.get("id")),
        model=string(response.get("model")),
        created=int(created) if isinstance(created, (int, float)) else 0,
        is_last=True,
        is_error=bool(response.get("error")),
    )


def _spoken(item: Mapping[str, object]) -> str:
    parts = objects(item.get("content"))
    return "".join(string(part.get("text")) or string(part.get("refusal")) for part in parts)


def _shown(item: Mapping[str, object]) -> str:
    return _spoken(item) if item.get("type") == "message" else "\n".join(prose_in(item)[0])


def _message(text: str) -> dict[str, object]:
    return {
        "id": f"msg_pg{secrets.token_hex(16)}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _read_items(reading: Reading, items: Sequence[object]) -> None:
    """Read items in their order, save that what the model made follows its message.

    So a client that resends reasoning and calls shows the history as it was stored.
    """
    made: list[Part] = []
    for at, each in enumerate(items):
        place = ("input", at)
        item = checked_object(each, place, _KNOWN, "must be an object")
        kind = string(item.get("type")) or "message"
        is_answer = kind == "message" and item.get("role") == "assistant"
        is_last = at == len(items) - 1
        if kind != "message" and not kind.endswith(("_output", "_response")):
            made.append((item, place))
            continue
        # A last answer is a prefill, before which everything else must have been read.
        if made and (not is_answer or is_last):
            _read_made(reading, made)
        before = len(reading.messages)
        if kind == "message":
            role = read_message(reading, item, place, is_last)
        else:
            role = _read_output(reading, item, place)
        if is_last:
            end_with_turn(reading, role, before)
    _read_made(reading, made)


def _read_made(reading: Reading, made: list[Part]) -> None:
    for item, place in made:
        reading.side_text(item, place)
    made.clear()


def _read_output(reading: Reading, item: Mapping[str, object], place: Place) -> Role:
    output, inside = item.get("output"), (*place, "output")
    if isinstance(output, (str, list)):
        reading.message(Role.TOOL, whole_text(reading, *parts_in(output, inside)), inside)
        item = {name: value for name, value in item.items() if name not in _OUTPUT}
    reading.side_text(item, place)
    return Role.TOOL
