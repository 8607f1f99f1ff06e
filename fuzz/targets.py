"""What is fuzzed: each target takes bytes, and raises where a promise is broken.

Errors of the package's own tree are answers, not faults.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

from promptguard.conversation import Message, messages_from
from promptguard.errors import DataError, InputError, ProviderError
from promptguard.fil.engine import NO_HISTORY, FrozenInstinct
from promptguard.providers.sse import SseParser
from promptguard.records import Fault, Record, read_records
from promptguard.service.anthropic_wire import MessagesWire
from promptguard.service.body import Limits, with_stripped
from promptguard.service.completions_wire import CompletionsWire
from promptguard.service.errors import ApiError
from promptguard.service.openai_wire import ChatWire
from promptguard.service.responses_wire import ResponsesWire
from promptguard.service.wire import Wire
from promptguard.state import SessionState
from promptguard.text.normalize import fold
from promptguard.text.places import Form, original_spans
from promptguard.text.read import decode, read_text
from promptguard.text.vocabulary import reads_like_language
from promptguard.text.windows import windows

_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_SECONDS = 0.5
_SECONDS_PER_CHAR = 40e-6


class Broken(AssertionError):
    """A promise that does not hold for the input."""


def _must(holds: bool, promise: str) -> None:
    if not holds:
        raise Broken(promise)


def text(data: bytes) -> None:
    """Read a text: views within it, well-formed, in time."""
    given = data.decode("utf-8", "surrogateescape")
    began = time.process_time()
    views = read_text(given)
    seconds = time.process_time() - began
    _must(seconds < _MAX_SECONDS + _SECONDS_PER_CHAR * len(given), "the time is linear")
    _must(views.folded == fold(views.plain), "folded is the fold of plain")
    _must(not views.is_truncated or len(given) > 1000, "a short text is not truncated")
    for view in views.decoded:
        _must(0 <= view.start < view.end <= len(given), "a view lies in the text")
        _must(bool(view.text) and bool(view.method), "a view has a text and a method")
    shown = (views.plain, views.folded, *(view.text for view in views.decoded))
    _must(not any(map(_SURROGATE.search, shown)), "no view holds half a character")
    _places(given, views.folded)
    _windows(given)


def _places(given: str, folded: str) -> None:
    spans = original_spans(given, [(at, at + 1) for at in range(len(folded))], form=Form.FOLDED)
    _must(all(0 <= start < end <= len(given) for start, end in spans), "places lie in the text")
    _must(all(a[0] <= b[0] for a, b in pairwise(spans)), "places come in order")


def _windows(given: str) -> None:
    found = list(windows(given, 40, 8))
    _must((found[0].start, found[-1].end) == (0, len(given)), "windows cover the text")
    _must(all(a.start < b.start <= a.end for a, b in pairwise(found)), "windows leave no gap")
    _must(all(window.text == given[window.start : window.end] for window in found), "windows fit")


def decoders(data: bytes) -> None:
    """Undo every encoding: views within the text that read like language, in time."""
    given = data.decode("utf-8", "replace")
    began = time.process_time()
    views = decode(given)
    seconds = time.process_time() - began
    _must(seconds < _MAX_SECONDS + _SECONDS_PER_CHAR * len(given), "the time is linear")
    for view in views:
        _must(0 <= view.start < view.end <= len(given), "a view lies in the text")
        _must(view.method == "several" or reads_like_language(view.text), "a view is language")


def matcher(data: bytes) -> None:
    """Match every rule: findings with scores, places in the text."""
    views = read_text(data.decode("utf-8", "replace"))
    found = _instinct().assess(views, NO_HISTORY, now=0.0)
    _must(0.0 <= found.harm_score <= 1.0, "a score lies in [0, 1]")
    _must(not found.is_hard or bool(found.violated), "a hard finding names its directive")


@cache
def _instinct() -> FrozenInstinct:
    return FrozenInstinct.load()


def body(data: bytes) -> None:
    """Read a request in each format of the gateway: texts with their places, or an ApiError."""
    limits = Limits(max_messages=50, max_chars=2000)
    for wire in _WIRES:
        try:
            asked = wire.read_request(data, limits)
        except ApiError:
            continue
        items = (*asked.messages, *asked.contents)
        _must(all(isinstance(item.content, str) for item in items), "a content is a text")
        # What was read must be there to be replaced.
        with_stripped(asked.body, [item for item in items if item.place])


def conversation(data: bytes) -> None:
    """Read messages from JSON: a conversation or an InputError."""
    items = _json(data)
    try:
        messages = messages_from(items)
    except InputError:
        return
    _must(bool(messages) and all(isinstance(m, Message) for m in messages), "messages come out")
    _must(all(isinstance(m.content, str) for m in messages), "a content is a text")


def records(data: bytes) -> None:
    """Read a file of records: the first byte chooses its format."""
    suffix = (".jsonl", ".json", ".csv", ".tsv")[data[0] % 4] if data else ".jsonl"
    with tempfile.NamedTemporaryFile(suffix=suffix, dir=_shared_memory()) as file:
        file.write(data[1:])
        file.flush()
        try:
            found = list(read_records([file.name]))
        except InputError:
            return
    _must(all(isinstance(item, (Record, Fault)) for item in found), "records and faults come out")


def sse(data: bytes) -> None:
    """Parse events: the same whatever the pieces are."""
    whole, cut = SseParser(), SseParser()
    try:
        expected = whole.feed(data) + whole.finish()
        size = 1 + (data[0] if data else 0) % 7
        pieces = (data[at : at + size] for at in range(0, len(data), size))
        found = [event for piece in pieces for event in cut.feed(piece)] + cut.finish()
    except ProviderError:
        return
    _must(found == expected, "pieces do not matter")


def state(data: bytes) -> None:
    """Read a stored session: a state that writes and reads itself, or a DataError."""
    try:
        read = SessionState.from_json(data)
    except DataError:
        return
    _must(SessionState.from_json(read.to_json()) == read, "a state survives its JSON")


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _shared_memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


_WIRES: tuple[Wire, ...] = (ChatWire(), CompletionsWire(), MessagesWire(), ResponsesWire())
TARGETS: dict[str, Callable[[bytes], None]] = {
    "text": text,
    "decoders": decoders,
    "matcher": matcher,
    "body": body,
    "conversation": conversation,
    "records": records,
    "sse": sse,
    "state": state,
}
