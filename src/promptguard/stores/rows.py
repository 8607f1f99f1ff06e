"""How transcript entries and labels lie in a table, the same in both databases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

from promptguard.conversation import Role
from promptguard.errors import DataError
from promptguard.protocols import SessionLabel
from promptguard.state import TranscriptEntry


class EntryRow(NamedTuple):
    """One transcript entry as it is stored.

    Text is kept as bytes: messages may hold NUL characters and lone surrogates, which
    PostgreSQL's text type and UTF-8 refuse.
    """

    position: int
    turn: int
    role: str
    content: bytes | None
    content_hash: str
    timestamp: float
    verdict: bytes


def rows_of(entries: Sequence[TranscriptEntry]) -> tuple[EntryRow, ...]:
    """Return one row per position; where a position comes twice the later entry counts."""
    newest = {entry.position: entry for entry in entries}
    return tuple(_row_of(entry) for entry in newest.values())


def entry_of(row: EntryRow) -> TranscriptEntry:
    """Return the entry that `rows_of` turned into a row."""
    return TranscriptEntry(
        position=row.position,
        turn=row.turn,
        role=Role(row.role),
        content=None if row.content is None else _from_bytes(row.content),
        content_hash=row.content_hash,
        timestamp=row.timestamp,
        verdict=_from_bytes(row.verdict),
    )


def label_json(label: SessionLabel) -> str:
    """Return a label as ASCII JSON, which holds any text."""
    return json.dumps(asdict(label))


def label_of(text: str) -> SessionLabel:
    """Return the label that `label_json` wrote."""
    try:
        return SessionLabel(**json.loads(text))
    except (TypeError, ValueError):
        raise DataError("A stored label does not have the expected form.") from None


def _row_of(entry: TranscriptEntry) -> EntryRow:
    return EntryRow(
        position=entry.position,
        turn=entry.turn,
        role=entry.role.value,
        content=None if entry.content is None else _to_bytes(entry.content),
        content_hash=entry.content_hash,
        timestamp=entry.timestamp,
        verdict=_to_bytes(entry.verdict),
    )


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _from_bytes(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")
