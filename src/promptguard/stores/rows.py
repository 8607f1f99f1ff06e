"""What all stores share: the names and versions they refuse, and how rows are made.

Entries, judged turns and labels lie in a table the same way in both databases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from promptguard.conversation import Role, printable
from promptguard.errors import DataError, InputError, StoreError, VersionConflict
from promptguard.protocols import SessionKey, SessionLabel
from promptguard.queries import StoredTurn, plain_part
from promptguard.state import SessionState, TranscriptEntry, is_demo
from promptguard.verdict import Action, Verdict

# A notification of PostgreSQL carries at most 8,000 bytes, and a row of an index fewer.
MAX_SESSION_ID = 512
MAX_TENANT = 128
# The language shows in the first sentences; the rest is not read for it.
_READ_CHARS = 600
_LEAST_WORDS = 2
_LAST_LATIN = "\u024f"
_LANGUAGE_WORD = re.compile(r"[^\W\d_]+")
# Kana comes before Han: Japanese uses both.
_SCRIPTS = (
    ("ja", re.compile("[\u3041-\u30fa]")),
    ("ko", re.compile("[\u1100-\u11ff\uac00-\ud7af]")),
    ("zh", re.compile("[\u3400-\u9fff]")),
    ("ar", re.compile("[\u0600-\u06ff]")),
    ("he", re.compile("[\u0590-\u05ff]")),
    ("el", re.compile("[\u0370-\u03ff]")),
    ("hi", re.compile("[\u0900-\u097f]")),
    ("th", re.compile("[\u0e00-\u0e7f]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
)
_FUNCTION_WORDS = {
    "en": "the and of to is are you your how what with for that this my it do not in me can i",
    "de": "der die das und ist nicht ich du wie was mit für ein eine mir den auf zu sind bitte",
    "es": "el la los las y es no que cómo como con para una por mi en del qué puedes un",
    "fr": "le la les et est pas que comment avec pour une des je vous dans mon sur quel un du",
    "it": "il lo gli e è non che come con per una di mi nel della sono puoi un del",
    "pt": "o os as e é não que como com para uma por meu em do da você um",
    "nl": "de het een en is niet ik hoe wat met voor van op mijn je zijn",
}
_LANGUAGE_WORDS = {code: frozenset(words.split()) for code, words in _FUNCTION_WORDS.items()}
# Bounds the searchable copy, which is read whole by every search for words.
_SEARCHED_CHARS = 4000
_MOST_WORDS = 8
# What an index row holds is bounded in PostgreSQL.
_REASON_CHARS = 150
_NAME_CHARS = 40
# As long as a key's name may be: what is allowed to one key is looked up by it.
_KEY_CHARS = 64
_MOST_TAGS = 10
_TAG_CHARS = 20
_SCORE = re.compile(r"\s+(?:\(\d+\.\d+\)|\d+\.\d+\b)")
_PLACE = re.compile(r"\bturns? \d+(?:-\d+)?\b")
# Names such as FIL-05 keep their numbers, and "1 turn" does not become "several turn".
_COUNT = re.compile(r"(?<![\w.-])(?!1 )\d[\d,]*\b")
TURN_COLUMNS = (
    "tenant, session_id, turn, position, second, action, severity, turn_risk, signal, reason, "
    "tags, language, key_name, latency_ms, is_demo, label, words"
)
TURN = tuple(TURN_COLUMNS.split(", "))
SESSION = (
    *("tenant", "session_id", "version", "mode", "updated", "state"),
    *("risk", "peak", "turns", "blocked", "is_demo", "key_name"),
)


def check_key(key: SessionKey) -> None:
    """Refuse names that a database could not hold or a notification could not carry."""
    for name, where, limit in (
        (key.session_id, "session_id", MAX_SESSION_ID),
        (key.tenant, "tenant", MAX_TENANT),
    ):
        if not 1 <= len(name) <= limit:
            raise InputError(f"{where} must have between 1 and {limit} characters.")
        # Neither can stand in a text column or a notification of PostgreSQL.
        if any(ord(char) < 32 or 0xD800 <= ord(char) <= 0xDFFF for char in name):
            raise InputError(f"{where} must not contain control characters or broken Unicode.")


def check_save(state: SessionState, expected_version: int) -> SessionKey:
    """Return the name of a state to save; refuse one that does not follow the version before."""
    key = SessionKey(session_id=state.session_id, tenant=state.tenant)
    check_key(key)
    # A wrong number is a mistake of the caller, not a conflict: repeating would not help.
    if expected_version < 0 or state.version != expected_version + 1:
        raise StoreError(
            f"A save on version {expected_version} must bring version {expected_version + 1}, "
            f"not {state.version}; number the state before saving it."
        )
    return key


def conflict(found: int, expected: int) -> VersionConflict:
    """Return the error for a session that stands at another version."""
    return VersionConflict(
        f"The session stands at version {found}, not {expected}: someone else saved it first; "
        "load it again and repeat."
    )


def closed() -> StoreError:
    """Return the error for a store used after `close`."""
    return StoreError("The store is closed; open it again to use it.")


def language_of(text: str) -> str:
    """Return a language code; empty where the text does not show its language."""
    head = text[:_READ_CHARS].casefold()
    letters = sum(char.isalpha() for char in head)
    # A symbol or a quoted word of another script is no language.
    if 4 * sum(char.isalpha() and char > _LAST_LATIN for char in head) >= letters > 0:
        for code, script in _SCRIPTS:
            if script.search(head):
                return code
    words = _LANGUAGE_WORD.findall(head)
    counts = sorted(
        ((sum(word in known for word in words), code) for code, known in _LANGUAGE_WORDS.items()),
        reverse=True,
    )
    # A tie between two languages says nothing.
    (most, code), (second, _) = counts[:2]
    return code if most > second and len(words) >= _LEAST_WORDS else ""


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
    return tuple(
        EntryRow(
            position=entry.position,
            turn=entry.turn,
            role=entry.role.value,
            content=None if entry.content is None else _to_bytes(entry.content),
            content_hash=entry.content_hash,
            timestamp=entry.timestamp,
            verdict=_to_bytes(entry.verdict),
        )
        for entry in _newest(entries)
    )


def entry_of(row: Sequence[Any]) -> TranscriptEntry:
    """Return the entry that `rows_of` turned into a row."""
    stored = dict(zip(EntryRow._fields, row, strict=True))
    return TranscriptEntry(
        role=Role(stored.pop("role")),
        content=text_of(stored.pop("content")),
        verdict=_from_bytes(stored.pop("verdict")),
        **stored,
    )


def turns_of(key: SessionKey, entries: Sequence[TranscriptEntry]) -> tuple[StoredTurn, ...]:
    """Return the turns whose verdict is among `entries`; the later entry of a turn counts."""
    newest = _newest(entries)
    texts: dict[int, list[str]] = {}
    for entry in newest:
        texts.setdefault(entry.turn, []).extend([entry.content] if entry.content else [])
    turns = {}
    for entry in newest:
        verdict = verdict_in(entry.verdict)
        if verdict is not None:
            turns[entry.turn] = _turn(key, entry, verdict, texts[entry.turn])
    return tuple(turns.values())


def turn_values(turn: StoredTurn) -> tuple[object, ...]:
    """Return a turn in the order of TURN_COLUMNS."""
    stored = {name: getattr(turn, name) for name in StoredTurn.__slots__} | {
        "action": turn.action.value,
        "severity": turn.action.severity,
        # A bar on both sides, so that a search for one tag never matches part of another.
        "tags": "".join(f"|{tag}" for tag in turn.tags) + "|" if turn.tags else "",
        "key_name": turn.key,
        "is_demo": int(turn.is_demo),
    }
    return tuple(stored[column] for column in TURN)


def turn_of(values: Sequence[Any]) -> StoredTurn:
    """Return the turn that `turn_values` wrote."""
    stored = dict(zip(TURN, values, strict=True))
    del stored["severity"]
    return StoredTurn(
        key=stored.pop("key_name"),
        action=Action(stored.pop("action")),
        tags=tuple(filter(None, stored.pop("tags").split("|"))),
        is_demo=bool(stored.pop("is_demo")),
        **stored,
    )


def session_values(state: SessionState) -> dict[str, Any]:
    """Return a session by the columns of SESSION."""
    return {
        "tenant": state.tenant,
        "session_id": state.session_id,
        "version": state.version,
        "mode": int(state.mode),
        "updated": state.updated,
        "state": state.to_json(),
        "risk": state.accumulated_risk,
        "peak": state.profile.peak_risk,
        "turns": state.turn_count,
        "blocked": state.profile.blocked,
        "is_demo": int(is_demo(state.session_id)),
        "key_name": key_name(state.session_id),
    }


def key_name(session_id: str) -> str:
    """Return the name of the API key that a session id begins with; empty where it has none."""
    name, colon, _ = session_id.partition(":")
    # The `demo:` of the bundled conversations stands where else a key's name does.
    return name[:_KEY_CHARS] if colon and not is_demo(session_id) else ""


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


def state_in(text: str) -> SessionState | None:
    """Return a stored state; None where this version cannot read it."""
    try:
        return SessionState.from_json(text)
    except DataError:
        # One odd session must not break a list, nor keep the text of all others.
        return None


def verdict_in(text: str | None) -> Verdict | None:
    """Return a stored verdict; None where there is none that this version reads."""
    if not text:
        return None
    try:
        return Verdict.from_json(printable(text))
    except DataError:
        # One odd row must not break a whole page.
        return None


def words_of(search: str) -> tuple[str, ...]:
    """Return the words that a search looks for."""
    return tuple(printable(search.replace("\0", " ")).casefold().split()[:_MOST_WORDS])


def id_forms(text: str) -> tuple[str, ...]:
    """Return how a text may stand in an id: as it is, and as the service writes it."""
    return tuple(dict.fromkeys((printable(text), plain_part(text))))


def _turn(
    key: SessionKey, entry: TranscriptEntry, verdict: Verdict, texts: Sequence[str]
) -> StoredTurn:
    strongest = next(iter(verdict.top_evidence), None)
    poisoned = next((finding for finding in verdict.content if finding.reason), None)
    # A content may be poisoned where nothing speaks against the turn itself; then it is the reason.
    reason = strongest.reason if strongest else poisoned.reason if poisoned else verdict.fault
    text = printable("\n".join(texts))
    return StoredTurn(
        tenant=key.tenant,
        session_id=key.session_id,
        turn=entry.turn,
        position=entry.position,
        second=int(entry.timestamp),
        action=verdict.action,
        turn_risk=verdict.turn_risk,
        signal=(strongest.signal if strongest else "content" if poisoned else "")[:_NAME_CHARS],
        reason=_without_numbers(printable(reason[:_REASON_CHARS])),
        tags=tuple(tag[:_TAG_CHARS] for tag in verdict.tags[:_MOST_TAGS]),
        language=language_of(text),
        key=key_name(key.session_id),
        latency_ms=verdict.latency_ms,
        is_demo=is_demo(key.session_id),
        words=text[:_SEARCHED_CHARS].casefold() if texts else None,
    )


def _without_numbers(reason: str) -> str:
    """Return a reason as it is the same for all turns of its kind: scores and counts differ."""
    return _COUNT.sub("several", _PLACE.sub("an earlier turn", _SCORE.sub("", reason)))


def _newest(entries: Sequence[TranscriptEntry]) -> Sequence[TranscriptEntry]:
    return tuple({entry.position: entry for entry in entries}.values())


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _from_bytes(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")
