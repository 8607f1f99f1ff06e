"""Server-sent events in any shape a server may send them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.errors import ProviderError
from promptguard.providers import sse
from promptguard.providers.sse import SseParser

STREAM = (
    "\ufeff: a comment\r\n\r\n"
    "event: message\r\nid: 1\r\ndata: héllo\r\n\r\n"
    "data:no space\n\n"
    "data: two\ndata:  lines\n\n"
    "retry: 5\r\r"
    "data: \U0001f600\r\r"
    "data\n\n"
    "data: [DONE]\n\n"
).encode()
EVENTS = ["héllo", "no space", "two\n lines", "\U0001f600", "", "[DONE]"]


def parse(pieces: list[bytes]) -> list[str]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)] + parser.finish()


def test_every_form_is_read() -> None:
    """Comments, CRLF, CR, byte order mark, several lines, unknown fields."""
    assert parse([STREAM]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_pieces_do_not_matter(cuts: list[int]) -> None:
    """However the bytes are cut, the events are the same."""
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in pairwise(edges)]
    assert parse(pieces) == EVENTS


def test_a_last_event_without_its_empty_line_is_given_at_the_end() -> None:
    """The server closed without the final newline."""
    assert parse([b"data: a\n\nda", b"ta: b"]) == ["a", "b"]


@given(st.binary(max_size=200))
def test_garbage_never_breaks_the_parser(raw: bytes) -> None:
    """Any bytes give some list of events."""
    assert isinstance(parse([raw]), list)


@pytest.mark.parametrize(
    "piece", [b"data: " + b"x" * 60, b"data: xxxxxxxxxx\n" * 8, b"data\n" * 60]
)
def test_an_endless_event_is_an_error(monkeypatch: pytest.MonkeyPatch, piece: bytes) -> None:
    """One event may not fill the memory, in one line or in many."""
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 50)
    with pytest.raises(ProviderError, match="more than 50 bytes"):
        SseParser().feed(piece)
