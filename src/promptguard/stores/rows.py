"""How entries, judged turns and labels lie in a table, the same in both databases."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from promptguard.conversation import Role
from promptguard.errors import DataError
from promptguard.protocols import SessionKey, SessionLabel
from promptguard.queries import StoredTurn, is_demo
from promptguard.state import TranscriptEntry
from promptguard.stores.language import language_of
from promptguard.verdict import Action, Span, Verdict

_SEARCHED_CHARS = 4000
# What an index row holds is bounded in PostgreSQL.
_REASON_CHARS = 150
_NAME_CHARS = 40
_MOST_TAGS = 10
_TAG_CHARS = 20
_SCORE = re.compile(r"\s+\d+\.\d+\b")
_COUNT = re.compile(r"(?<![\w.-])\d+\b")
TURN_COLUMNS = (
    "tenant, session_id, turn, position, second, action, severity, turn_risk, signal, reason, "
    "tags, language, key_name, latency_ms, is_demo, label, words"
)


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
        content=text_of(row.content),
        content_hash=row.content_hash,
        timestamp=row.timestamp,
        verdict=_from_bytes(row.verdict),
    )


def turns_of(key: SessionKey, entries: Sequence[TranscriptEntry]) -> tuple[StoredTurn, ...]:
    """Return the turns whose verdict is among `entries`; the later entry of a turn counts."""
    newest = {entry.position: entry for entry in entries}
    turns = {}
    for entry in newest.values():
        verdict = _verdict(entry.verdict)
        if verdict is not None:
            texts = [e.content for e in newest.values() if e.turn == entry.turn and e.content]
            turns[entry.turn] = _turn(key, entry, verdict, texts)
    return tuple(turns.values())


def spans_in(verdict: str | None) -> tuple[Span, ...]:
    """Return the words that a stored verdict points at."""
    found = _verdict(verdict or "")
    return () if found is None else found.spans


def turn_values(turn: StoredTurn) -> tuple[object, ...]:
    """Return a turn in the order of TURN_COLUMNS."""
    return (
        turn.tenant,
        turn.session_id,
        turn.turn,
        turn.position,
        turn.second,
        turn.action.value,
        turn.action.severity,
        turn.turn_risk,
        turn.signal,
        turn.reason,
        "".join(f"|{tag}" for tag in turn.tags) + "|" if turn.tags else "",
        turn.language,
        turn.key,
        turn.latency_ms,
        int(turn.is_demo),
        turn.label,
        turn.words,
    )


def turn_of(values: Sequence[Any]) -> StoredTurn:
    """Return the turn that `turn_values` wrote."""
    tenant, session_id, turn, position, second, action, _, risk, signal, reason = values[:10]
    tags, language, key, latency_ms, demo, label, words = values[10:17]
    return StoredTurn(
        tenant=tenant,
        session_id=session_id,
        turn=turn,
        position=position,
        second=second,
        action=Action(action),
        turn_risk=risk,
        signal=signal,
        reason=reason,
        tags=tuple(tag for tag in tags.split("|") if tag),
        language=language,
        key=key,
        latency_ms=latency_ms,
        is_demo=bool(demo),
        label=label,
        words=words,
    )


def key_name(session_id: str) -> str:
    """Return the name of the API key that a session id begins with; empty where it has none."""
    name, colon, _ = session_id.partition(":")
    return name[:_NAME_CHARS] if colon and not is_demo(session_id) else ""


def text_of(raw: bytes | None) -> str | None:
    """Return stored text; None where it is not kept."""
    return None if raw is None else _from_bytes(raw)


def label_json(label: SessionLabel) -> str:
    """Return a label as ASCII JSON, which holds any text."""
    return json.dumps(asdict(label))


def label_of(text: str) -> SessionLabel:
    """Return the label that `label_json` wrote."""
    try:
        return SessionLabel(**json.loads(text))
    except (TypeError, ValueError):
        raise DataError("A stored label does not have the expected form.") from None


def _verdict(text: str) -> Verdict | None:
    """Return a stored verdict; None where there is none that this version reads."""
    if not text:
        return None
    try:
        return Verdict.from_json(_printable(text))
    except DataError:
        return None


def _turn(
    key: SessionKey, entry: TranscriptEntry, verdict: Verdict, texts: Sequence[str]
) -> StoredTurn:
    strongest = next(iter(verdict.top_evidence), None)
    poisoned = next((finding for finding in verdict.content if finding.reason), None)
    reason = strongest.reason if strongest else poisoned.reason if poisoned else verdict.fault
    text = _printable("\n".join(texts))
    return StoredTurn(
        tenant=key.tenant,
        session_id=key.session_id,
        turn=entry.turn,
        position=entry.position,
        second=int(entry.timestamp),
        action=verdict.action,
        turn_risk=verdict.turn_risk,
        signal=(strongest.signal if strongest else "content" if poisoned else "")[:_NAME_CHARS],
        reason=_without_numbers(_printable(reason[:_REASON_CHARS])),
        tags=tuple(tag[:_TAG_CHARS] for tag in verdict.tags[:_MOST_TAGS]),
        language=language_of(text),
        key=key_name(key.session_id),
        latency_ms=verdict.latency_ms,
        is_demo=is_demo(key.session_id),
        words=text[:_SEARCHED_CHARS].casefold() if texts else None,
    )


def _without_numbers(reason: str) -> str:
    """Return a reason as it is the same for all turns of its kind: scores and counts differ."""
    return _COUNT.sub("several", _SCORE.sub("", reason))


def _printable(text: str) -> str:
    """Return text that every database takes as text: without NUL and broken Unicode."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


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
