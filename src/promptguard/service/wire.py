"""What the gateway knows of a wire format: requests read, answers watched, refusals written."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

from promptguard.conversation import ComparableMessage, without_lone_surrogates
from promptguard.service.body import Limits, Reading, checked_flag, poisoned_in, with_stripped
from promptguard.service.errors import ApiError, error_body

DONE = b"data: [DONE]\n\n"
CONTENT_FILTER = "content_filter"
PREVIOUS = "previous_response_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedRequest:
    """A request: `raw` as it came, and every text in it.

    `messages` are the conversation without the developer's part, which is `system`; `contents`
    are the other fields that a model may read; `unjudged` names what is not text. `end_user` says
    whose conversation it is, not which; `continues` is the answer that this request goes on from.
    """

    raw: bytes
    body: Mapping[str, object]
    messages: tuple[ComparableMessage, ...]
    contents: tuple[ComparableMessage, ...]
    system: str
    unjudged: tuple[str, ...]
    model: str
    is_stream: bool
    end_user: str = ""
    continues: str = ""

    @classmethod
    def of(
        cls,
        raw: bytes,
        body: Mapping[str, object],
        reading: Reading,
        *,
        model: str,
        end_user: object,
        continues: str = "",
    ) -> Self:
        """Return the request that `reading` has read from `body`."""
        return cls(
            raw=raw,
            body=body,
            messages=tuple(reading.messages),
            contents=tuple(reading.contents),
            system="\n".join(text for text in reading.system if text),
            unjudged=tuple(dict.fromkeys(reading.unjudged)),
            # Refusals and traces name it, which broken Unicode would make impossible to write.
            model=without_lone_surrogates(model),
            is_stream=checked_flag(body, "stream"),
            end_user=string(end_user),
            continues=continues,
        )

    def forwarded(self, *, notice: str = "", stripped: frozenset[str] = frozenset()) -> bytes:
        """Return the body for the model: with one more notice, without `stripped`.

        `stripped` are the digests of contents that the model must not see.
        """
        poisoned = self.poisoned(stripped) if stripped else ()
        if not notice and not poisoned:
            # Untouched bytes: to write JSON anew could change what the model reads.
            return self.raw
        body = with_stripped(self.body, poisoned)
        assert isinstance(body, dict)
        return json.dumps(self.noticed(body, notice) if notice else body).encode()

    def poisoned(self, stripped: frozenset[str]) -> list[ComparableMessage]:
        """Return the texts of this request that the model must not see."""
        return poisoned_in((*self.messages, *self.contents), stripped)

    def going_on_from(self, answer: str) -> Self:
        """Return the request with another answer as the one it goes on from; empty: none."""
        body = {name: value for name, value in self.body.items() if name != PREVIOUS}
        body |= {PREVIOUS: answer} if answer else {}
        return replace(self, body=body, raw=json.dumps(body).encode())

    @abstractmethod
    def noticed(self, body: Mapping[str, object], notice: str) -> Mapping[str, object]:
        """Return the body with a notice to the model beside the developer's own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceText:
    """The text of one choice of an answer, or of one event of it.

    `text` is the answer proper; `shown` is all that leaves the model, in its order: reasoning and
    the arguments of tool calls included.
    """

    index: int
    text: str
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPart:
    """One answer or event; `is_error` where the upstream sent an error in its place.

    `is_last` where the answer is whole after it. `id`, `model` and `created` are the answer's,
    empty where an event does not say.
    """

    choices: tuple[ChoiceText, ...] = ()
    id: str = ""
    model: str = ""
    created: int = 0
    is_last: bool = False
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal in place of an answer, or of the rest of one.

    `sent` is what the client has got of the answer so far; `begun` says whether it got any event.
    `id`, `model` and `created` are those of the upstream's answer where there is one.
    """

    text: str
    model: str
    created: int
    id: str
    sent: str = ""
    begun: bool = False


class EventReader(Protocol):
    """Reads the events of one streamed answer, in order."""

    def read(self, data: str) -> AnswerPart | None:
        """Return what an event brings, None where it is no event of this format."""


class Wire(Protocol):
    """One wire format, for one request: what was passed on shapes how a stream can end.

    `path` is the upstream's, `operation` the name in traces.
    """

    path: str
    operation: str

    def new_id(self) -> str:
        """Return an id for an answer of our own."""

    def read_request(self, raw: bytes, limits: Limits) -> GuardedRequest:
        """Read a request; raises an ApiError that names the field where it cannot be judged."""

    def read_answer(self, raw: bytes) -> AnswerPart | None:
        """Read a whole answer, None where it is none."""

    def event_reader(self) -> EventReader:
        """Return a reader for one streamed answer."""

    def refusal(self, request: GuardedRequest, refusal: Refusal) -> Mapping[str, object]:
        """Return an answer that refuses."""

    def refusal_events(self, request: GuardedRequest, refusal: Refusal) -> Iterator[bytes]:
        """Yield the events that end a stream with a refusal."""

    def event(self, data: str) -> bytes:
        """Return one event of the upstream as it is passed on."""

    def end(self) -> bytes:
        """Return what follows the last event."""

    def error_body(self, error: ApiError) -> Mapping[str, object]:
        """Return an error in the shape that clients of this format read."""

    def error_events(self, error: ApiError) -> Iterator[bytes]:
        """Yield the events that end a stream with an error."""


class ChunkWire:
    """What OpenAI's formats share whose answers are lists of choices, whole or in chunks."""

    def read_answer(self, raw: str | bytes) -> AnswerPart | None:
        """Read one answer."""
        return self.read(raw)

    def event_reader(self) -> Self:
        """Return the reader of chunks: they need no memory."""
        return self

    def read(self, data: str | bytes) -> AnswerPart | None:
        """Read one answer or chunk."""
        body = parsed(data)
        if body is None:
            return None
        if body.get("error"):
            return AnswerPart(is_error=True)
        choices, created = body.get("choices"), body.get("created")
        if not isinstance(choices, list):
            return None
        return AnswerPart(
            choices=tuple(
                self.choice_of(choice, at)
                for at, choice in enumerate(choices)
                if isinstance(choice, Mapping)
            ),
            id=string(body.get("id")),
            model=string(body.get("model")),
            created=created if isinstance(created, int) else 0,
            is_last=any(each.get("finish_reason") is not None for each in objects(choices)),
        )

    @abstractmethod
    def choice_of(self, choice: Mapping[str, object], at: int) -> ChoiceText:
        """Read one choice, the one `at` that place in the list."""

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


def openai_error(error: ApiError) -> dict[str, object]:
    """Return an error in OpenAI's shape."""
    return error_body(error.status_code, str(error.detail), code=error.code, param=error.param)


def sse_event(data: str, *, name: str = "") -> bytes:
    """Return one server-sent event."""
    # A line break inside data would end the field; each line gets a name of its own.
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    head = f"event: {name}\n" if name else ""
    # A model may send one half of a surrogate pair in each of two chunks.
    return f"{head}{lines}\n".encode("utf-8", "replace")


def named_event(body: Mapping[str, object]) -> bytes:
    """Return an event that bears its type as its name."""
    return sse_event(json.dumps(body), name=string(body.get("type")))


def passed_on(data: str) -> bytes:
    """Return an event of the upstream, named by its type as it came."""
    body = parsed(data)
    kind = string(body.get("type")) if body is not None else ""
    # A name with a line break would forge another field of the event.
    return sse_event(data, name=kind if kind.replace(".", "_").isidentifier() else "")


def parsed(raw: str | bytes) -> Mapping[str, object] | None:
    """Return the JSON object in `raw`, None where there is none."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def string(value: object) -> str:
    """Return a string as it is and anything else as nothing."""
    return value if isinstance(value, str) else ""


def mapping(value: object) -> Mapping[str, object]:
    """Return an object as it is and anything else as an empty one."""
    return value if isinstance(value, Mapping) else {}


def objects(value: object) -> list[Mapping[str, object]]:
    """Return the objects in a list; nothing where it is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
