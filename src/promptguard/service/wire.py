"""What the gateway knows of a wire format: requests read, answers watched, refusals written."""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from promptguard.conversation import ComparableMessage, without_lone_surrogates
from promptguard.service.body import (
    Limits,
    Reading,
    checked_flag,
    checked_model,
    checked_object,
    poisoned_in,
    read_json,
    with_stripped,
)
from promptguard.service.errors import ApiError, error_body

DONE = b"data: [DONE]\n\n"
CONTENT_FILTER = "content_filter"
PREVIOUS = "previous_response_id"
# Lists whose items come from different hands, so each is judged by itself.
_ITEMISED = frozenset({"tools", "functions", "documents"})


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

    def poisoned(self, stripped: frozenset[str]) -> list[ComparableMessage]:
        """Return the texts of this request that the model must not see, by their digests."""
        return poisoned_in((*self.messages, *self.contents), stripped) if stripped else []

    def going_on_from(self, answer: str) -> Self:
        """Return the request with another answer as the one it goes on from; empty: none."""
        body = {name: value for name, value in self.body.items() if name != PREVIOUS}
        body |= {PREVIOUS: answer} if answer else {}
        return replace(self, body=body, raw=json.dumps(body).encode())


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
    """A refusal in place of an answer to `asked`, or of the rest of one.

    `sent` is what the client has got of the answer so far; `begun` says whether it got any event.
    `id`, `model` and `created` are those of the upstream's answer where there is one.
    """

    asked: GuardedRequest
    text: str
    model: str
    created: int
    id: str
    sent: str = ""
    begun: bool = False

    @property
    def appended(self) -> str:
        """The text for clients that append it to what they have shown: a paragraph of its own."""
        return f"\n\n{self.text}" if self.sent else self.text


class Wire(ABC):
    """One wire format, for one request: what was passed on shapes how a stream can end.

    `path` is the upstream's, `field` where the user's words are. Keys in another spelling of
    `known` are refused, the body's fields in `not_read` are no contents. Ids of our own begin
    with `mark`, and `end` follows the last event of a stream.
    """

    path: ClassVar[str]
    field: ClassVar[str] = "messages"
    known: ClassVar[frozenset[str]]
    not_read: ClassVar[frozenset[str]]
    mark: ClassVar[str]
    end: ClassVar[bytes] = b""
    needs_model: ClassVar[bool] = True

    def new_id(self) -> str:
        """Return an id for an answer of our own."""
        return f"{self.mark}{secrets.token_hex(12)}"

    def read_request(self, raw: bytes, limits: Limits) -> GuardedRequest:
        """Read a request; raises an ApiError that names the field where it cannot be judged."""
        return self.asked(read_json(raw), limits, raw)

    def asked(self, body: object, limits: Limits, raw: bytes = b"") -> GuardedRequest:
        """Read the body of a request that came as `raw`."""
        fields = checked_object(body, ("body",), self.known, "must be a JSON object")
        reading = Reading(limits=limits)
        self.read_words(reading, fields)
        _read_contents(reading, fields, self.not_read)
        model = checked_model(fields) if self.needs_model else string(fields.get("model"))
        return GuardedRequest(
            raw=raw,
            body=fields,
            messages=tuple(reading.messages),
            contents=tuple(reading.contents),
            system="\n".join(text for text in reading.system if text),
            unjudged=tuple(dict.fromkeys(reading.unjudged)),
            # Refusals and traces name it, which broken Unicode would make impossible to write.
            model=without_lone_surrogates(model),
            is_stream=checked_flag(fields, "stream"),
            end_user=string(self.end_user(fields)),
            continues=self.continued(fields),
        )

    @abstractmethod
    def read_words(self, reading: Reading, body: Mapping[str, object]) -> None:
        """Read the conversation and the developer's words."""

    def end_user(self, body: Mapping[str, object]) -> object:
        """Return whose conversation it is."""
        return body.get("user")

    def continued(self, body: Mapping[str, object]) -> str:
        """Return the answer that a request goes on from; only some formats have them."""
        del body
        return ""

    def forwarded(
        self, asked: GuardedRequest, *, notice: str = "", stripped: frozenset[str] = frozenset()
    ) -> bytes:
        """Return the body for the model: with one more notice, without `stripped`.

        `stripped` are the digests of contents that the model must not see.
        """
        body = mapping(with_stripped(asked.body, asked.poisoned(stripped)))
        changed = self.noticed(body, notice) if notice else body
        # Untouched bytes: to write JSON anew could change what the model reads.
        return asked.raw if changed is asked.body else json.dumps(changed).encode()

    def noticed(self, body: Mapping[str, object], notice: str) -> Mapping[str, object]:
        """Return the body with a notice beside the developer's words, if they have a place."""
        del notice
        return body

    def read_answer(self, raw: bytes) -> AnswerPart | None:
        """Read a whole answer, None where it is none."""
        return _taken_apart(raw, self.answer_in)

    def read_event(self, data: str) -> AnswerPart | None:
        """Read the next event of a streamed answer, None where it is none of this format."""
        return _taken_apart(data, self.event_in)

    @abstractmethod
    def answer_in(self, body: Mapping[str, object]) -> AnswerPart | None:
        """Take a whole answer apart."""

    @abstractmethod
    def event_in(self, body: Mapping[str, object]) -> AnswerPart | None:
        """Take an event apart."""

    @abstractmethod
    def refusal(self, refusal: Refusal) -> Mapping[str, object]:
        """Return an answer that refuses."""

    @abstractmethod
    def refusal_events(self, refusal: Refusal) -> Iterator[bytes]:
        """Yield the events that end a stream with a refusal."""

    def event(self, data: str) -> bytes:
        """Return one event of the upstream as it is passed on, named by its type."""
        body = parsed(data) or {}
        self.note_sent(body)
        kind = string(body.get("type"))
        # A name with a line break would forge another field of the event.
        return sse_event(data, name=kind if kind.replace(".", "_").isidentifier() else "")

    def note_sent(self, event: Mapping[str, object]) -> None:  # noqa: B027  # most need nothing
        """Note what the client gets."""

    def error_body(self, error: ApiError) -> Mapping[str, object]:
        """Return an error in the shape that clients of this format read."""
        return error_body(error.status_code, str(error.detail), code=error.code, param=error.param)

    def error_event(self, error: ApiError) -> bytes:
        """Return an error in a stream, once the status can no longer change."""
        return named_event(self.error_body(error))


class ChunkWire(Wire):
    """What OpenAI's formats share whose answers are lists of choices, whole or in chunks."""

    end = DONE

    def answer_in(self, body: Mapping[str, object]) -> AnswerPart | None:
        """Take an answer or chunk apart."""
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

    event_in = answer_in

    def choice_of(self, choice: Mapping[str, object], at: int) -> ChoiceText:
        """Read one choice, the one `at` that place in the list."""
        index, (text, shown) = choice.get("index"), self.texts_in(choice)
        return ChoiceText(index=index if isinstance(index, int) else at, text=text, shown=shown)

    @abstractmethod
    def texts_in(self, choice: Mapping[str, object]) -> tuple[str, str]:
        """Return the answer proper of one choice, and all that it shows."""

    def event(self, data: str) -> bytes:
        """Return one chunk as it came."""
        return sse_event(data)

    def envelope(self, refusal: Refusal, kind: str) -> dict[str, object]:
        """Return the fields every answer and every chunk begins with."""
        names = {"id": refusal.id, "object": kind, "created": refusal.created}
        return {**names, "model": refusal.model}


def _read_contents(reading: Reading, body: Mapping[str, object], skipped: frozenset[str]) -> None:
    """Read what a model may see beside the messages."""
    for name, value in body.items():
        if name in skipped:
            continue
        if name in _ITEMISED and isinstance(value, list):
            for at, item in enumerate(value):
                reading.content(item, (name, at))
        else:
            reading.content(value, (name,))


def _taken_apart(
    raw: str | bytes, take: Callable[[Mapping[str, object]], AnswerPart | None]
) -> AnswerPart | None:
    body = parsed(raw)
    try:
        return None if body is None else take(body)
    except RecursionError:
        # Nested just not deep enough for the parser to give up.
        return None


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
