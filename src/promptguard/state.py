"""All that is remembered of one conversation: one frozen value, bounded in size.

`SessionState` is the single truth. The views a reader may want, `ConversationMemory` (what was
talked about) and `ConversationHistory` (what was violated, and when), are computed from it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from promptguard.conversation import Role, without_lone_surrogates
from promptguard.errors import DataError
from promptguard.verdict import Action, Mode

FORMAT_VERSION = 2
RECENT_TURNS = 10
MAX_SEGMENTS = 10
# In bytes and not in characters, so that a state of any script stays under 64 KiB.
EXCERPT_BYTES = 1200
DEMO_PREFIX = "demo:"


class ReplyKind(StrEnum):
    """What the assistant did with a turn."""

    NONE = "none"
    REFUSED = "refused"
    PARTIAL = "partial"
    COMPLIED = "complied"
    OPERATIONAL = "operational"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """What one turn added to the session's evidence, and the share of it not yet faded.

    `signals` names what spoke for it; their nats sum to `nats`.
    """

    turn: int
    nats: float
    retained: float
    signals: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The evidence a session has shown so far."""

    entries: tuple[LedgerEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A session that the policy has closed: since which turn, and why."""

    turn: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRecord:
    """What is kept of the assistant's answer to a turn."""

    kind: ReplyKind
    excerpt: str
    timestamp: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """What is kept of one user turn."""

    turn: int
    excerpt: str
    content_hash: str
    timestamp: float
    message_risk: float
    turn_risk: float
    mode: Mode
    action: Action
    harm_score: float = 0.0
    directives: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    is_flagged: bool = False
    is_hard: bool = False
    key_terms: tuple[str, ...] = ()
    gathering_step: int = 0
    is_follow_up: bool = False
    embedding: str = ""
    reply: ReplyRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    """Consecutive turns on one subject: range, key terms, centroid, mean and peak risk."""

    first_turn: int
    last_turn: int
    key_terms: tuple[str, ...]
    centroid: str
    mean_risk: float
    peak_risk: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionProfile:
    """Counts over the whole session."""

    turns: int = 0
    blocked: int = 0
    stripped: int = 0
    flagged: int = 0
    refusals: int = 0
    mode_changes: int = 0
    probing: int = 0
    hypotheticals: int = 0
    meta_instructions: int = 0
    topics_revisited: int = 0
    peak_message_risk: float = 0.0
    peak_risk: float = 0.0
    gap_count: int = 0
    gap_mean_s: float = 0.0
    # Sum of squared deviations from the running mean, from which the variance follows.
    gap_m2_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Residue:
    """What a directive leaves behind once its message has left the window."""

    directive: str
    harm: float
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationEvent:
    """A flagged message, remembered for bursts."""

    timestamp: float
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeEntry:
    """The turn at which a mode was first entered."""

    turn: int
    mode: Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """Everything that is remembered; a new value for every turn, numbered by `version`.

    `system` is what the readers see of the application's prompt as it was last given.
    """

    session_id: str
    tenant: str = "default"
    version: int = 0
    created: float = 0.0
    updated: float = 0.0
    accumulated_risk: float = 0.0
    mode: Mode = Mode.SAFE
    message_count: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    recent: tuple[TurnRecord, ...] = ()
    segments: tuple[TopicSummary, ...] = ()
    profile: SessionProfile = field(default_factory=SessionProfile)
    residues: tuple[Residue, ...] = ()
    escalations: tuple[EscalationEvent, ...] = ()
    entered: tuple[ModeEntry, ...] = ()
    intent: tuple[float, ...] = ()
    history_rewrites: int = 0
    lock: Lock | None = None
    system: str = ""
    config_hash: str = ""

    @property
    def turn_count(self) -> int:
        """How many user turns were judged."""
        return self.profile.turns

    @property
    def memory(self) -> ConversationMemory:
        """The view of what was talked about."""
        return ConversationMemory(
            recent_turns=self.recent, topic_segments=self.segments, session_patterns=self.profile
        )

    @property
    def history(self) -> ConversationHistory:
        """The view of what was violated, and when."""
        return ConversationHistory(
            messages=tuple(_history_messages(self.recent)),
            residues=self.residues,
            escalation_events=self.escalations,
        )

    def to_json(self) -> str:
        """Return the one JSON form of a state."""
        # Most fields have their defaults; without them the stored state is far smaller.
        body: dict[str, Any] = _STATE.dump_python(self, mode="json", exclude_defaults=True)
        named = {"format": FORMAT_VERSION, **body}
        # A caller's words may hold half a surrogate pair, which no database takes.
        return without_lone_surrogates(json.dumps(named, ensure_ascii=False, separators=(",", ":")))

    @classmethod
    def from_json(cls, text: str | bytes) -> SessionState:
        """Read a state written by this version or an older one."""
        try:
            body = dict(_JSON.validate_json(text))
            if not _is_finite(body):
                raise DataError("A stored session holds a number that is not finite.")
            found = body.pop("format", 1)
            if not isinstance(found, int):
                raise DataError("A stored session names no format.")
            if found > FORMAT_VERSION:
                raise DataError(
                    f"The session was stored in format {found}, this version reads up to "
                    f"{FORMAT_VERSION}; upgrade promptguard."
                )
            return _STATE.validate_python(_upgraded(body, found))
        except ValidationError as error:
            raise DataError(
                # The faults are counted and not quoted: they hold parts of the conversation.
                f"A stored session does not have the expected form ({error.error_count()} faults)."
            ) from None

    def with_reply(self, turn: int, reply: ReplyRecord) -> SessionState:
        """Return the state with the assistant's answer to `turn` recorded, once."""
        recent = tuple(
            replace(record, reply=reply) if record.turn == turn and record.reply is None else record
            for record in self.recent
        )
        if recent == self.recent:
            return self
        refused = int(reply.kind is ReplyKind.REFUSED)
        return replace(
            self,
            recent=recent,
            profile=replace(self.profile, refusals=self.profile.refusals + refused),
        )

    def without_old_text(self, before: float) -> SessionState | None:
        """Return the next version without excerpts older than `before`; None where none is.

        The version rises so that a turn under way, which still holds the old text, meets a
        conflict and does not write it back.
        """
        recent = []
        for record in self.recent:
            reply = record.reply
            if reply is not None and reply.timestamp < before:
                reply = replace(reply, excerpt="")
            excerpt = "" if record.timestamp < before else record.excerpt
            recent.append(replace(record, excerpt=excerpt, reply=reply))
        if tuple(recent) == self.recent:
            return None
        return replace(self, recent=tuple(recent), version=self.version + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationMemory:
    """Short, medium and long term: exact turns, topic summaries, session patterns."""

    recent_turns: tuple[TurnRecord, ...]
    topic_segments: tuple[TopicSummary, ...]
    session_patterns: SessionProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationMessage:
    """One message as the Frozen Instinct Layer sees it."""

    role: Role
    content: str
    timestamp: float
    harm_score: float
    fil_violations: frozenset[str]
    is_flagged: bool
    concepts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationHistory:
    """The last turns as messages, the residues of older ones, and the escalation events."""

    messages: tuple[ConversationMessage, ...]
    residues: tuple[Residue, ...]
    escalation_events: tuple[EscalationEvent, ...]

    def within(self, window_s: float, now: float) -> tuple[ConversationMessage, ...]:
        """Return the messages not older than `window_s`; a clock gone backwards is age zero."""
        return tuple(m for m in self.messages if max(0.0, now - m.timestamp) <= window_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptEntry:
    """One stored message of the whole transcript, with the verdict on it where it was judged.

    `position` counts the messages of a session from 0 and never changes; `verdict` is the JSON
    of what was decided, kept so that explanations need not judge again.
    """

    position: int
    turn: int
    role: Role
    content: str | None
    content_hash: str
    timestamp: float
    verdict: str = ""


def _history_messages(recent: Iterable[TurnRecord]) -> Iterable[ConversationMessage]:
    for turn in recent:
        yield ConversationMessage(
            role=Role.USER,
            content=turn.excerpt,
            timestamp=turn.timestamp,
            harm_score=turn.harm_score,
            fil_violations=frozenset(turn.directives),
            is_flagged=turn.is_flagged,
            concepts=frozenset(turn.concepts),
        )
        if turn.reply is not None:
            yield ConversationMessage(
                role=Role.ASSISTANT,
                content=turn.reply.excerpt,
                timestamp=turn.reply.timestamp,
                # The risk of a directive adds up over the user's messages alone.
                harm_score=0.0,
                fil_violations=frozenset(),
                is_flagged=False,
            )


def _is_finite(value: object) -> bool:
    """Say whether every number in plain data is one; "1e999" reads as infinity."""
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _upgraded(body: dict[str, Any], found: int) -> dict[str, Any]:
    """Return a state of an older format in the present one.

    Format 1 kept evidence by signal and one risk a turn; its ledger cannot be carried over, so
    such a session starts to accumulate anew, with its turns remembered.
    """
    if found >= FORMAT_VERSION:
        return body
    stored = body.get("recent", [])
    if not isinstance(stored, list) or not all(isinstance(record, dict) for record in stored):
        raise DataError("A stored session of an older format cannot be read.")
    recent = []
    for record in stored:
        reply = record.get("reply")
        if isinstance(reply, dict):
            reply = {key: value for key, value in reply.items() if key != "risk"}
        kept = {key: value for key, value in record.items() if key not in ("risk", "reply")}
        recent.append({**kept, "turn_risk": record.get("risk", 0.0), "reply": reply})
    return {**body, "recent": recent, "ledger": {}}


def is_demo(session_id: str) -> bool:
    """Say whether a session is one of the bundled conversations."""
    return session_id.startswith(DEMO_PREFIX)


def excerpt_of(text: str, limit_bytes: int = EXCERPT_BYTES) -> str:
    """Return `text`, or its head and tail where it is longer than the bound allows."""
    # A lone surrogate has no UTF-8 form and becomes a question mark.
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return raw.decode("utf-8", "ignore")
    # The ellipsis takes three bytes; a character that the cut divides is dropped.
    half = (limit_bytes - 3) // 2
    head = raw[:half].decode("utf-8", "ignore")
    tail = raw[-half:].decode("utf-8", "ignore")
    return f"{head}…{tail}"


_STATE: TypeAdapter[SessionState] = TypeAdapter(SessionState)
_JSON: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
