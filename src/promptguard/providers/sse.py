"""Server-sent events: from bytes as they arrive to the data of each event."""

from __future__ import annotations

from promptguard.errors import ProviderError

MAX_EVENT_BYTES = 8 * 1024 * 1024


class SseParser:
    """Takes bytes in any pieces, gives the data of every finished event.

    Tolerates CRLF, CR, comments, a byte order mark, several data lines per event, unknown fields
    and characters split between pieces. Raises ProviderError where one event is larger than
    MAX_EVENT_BYTES.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._ends_in_cr = False
        self._is_first_line = True

    def feed(self, piece: bytes) -> list[str]:
        """Return the data of the events that `piece` finished."""
        # A CRLF that was cut between two pieces is one line end, not two.
        if self._ends_in_cr and piece.startswith(b"\n"):
            piece = piece[1:]
            self._ends_in_cr = False
        if not piece:
            return []
        self._ends_in_cr = piece.endswith(b"\r")
        *lines, rest = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events = []
        for line in lines:
            event = self._line(bytes(self._buffer) + line)
            self._buffer.clear()
            if event is not None:
                events.append(event)
        self._buffer += rest
        self._check_size()
        return events

    def finish(self) -> list[str]:
        """Return the data of an event that the end of the stream left without its empty line."""
        self._line(bytes(self._buffer))
        self._buffer.clear()
        # Servers that close right after the last line have sent the event all the same.
        event = self._line(b"")
        return [] if event is None else [event]

    def _line(self, line: bytes) -> str | None:
        if self._is_first_line:
            line = line.removeprefix(b"\xef\xbb\xbf")
            self._is_first_line = False
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            # With its line end, so that empty lines do not come without end.
            self._size += len(value) + 1
            self._check_size()
        return None

    def _dispatch(self) -> str | None:
        if not self._data:
            return None
        # Decoded only when whole: a character may be split between two pieces.
        event = b"\n".join(self._data).decode("utf-8", "replace")
        self._data.clear()
        self._size = 0
        return event

    def _check_size(self) -> None:
        if self._size + len(self._buffer) > MAX_EVENT_BYTES:
            raise ProviderError(
                f"The upstream sent an event of more than {MAX_EVENT_BYTES} bytes; "
                "check that it is a chat completion endpoint."
            )
