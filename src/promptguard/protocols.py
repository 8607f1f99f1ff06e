"""The seams: what a judge, a signal, an encoder, a provider and a store must offer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from promptguard.conversation import Message
from promptguard.core.decision import Label
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.decisions import Decision
from promptguard.model.reading import ContextReading, DocumentReading, MessageReading
from promptguard.queries import (
    JudgedQuery,
    JudgedTurn,
    LabelFilter,
    Overview,
    OverviewQuery,
    Precision,
    SessionListPage,
    SessionSort,
    TurnFilter,
    TurnQuery,
    TurnRow,
)
from promptguard.state import SessionState, TranscriptEntry
from promptguard.text.read import TextViews
from promptguard.usage import Usage
from promptguard.vector import Vector
from promptguard.verdict import SignalScore

# --- judging one layer -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTask:
    """One question to a judge: look at `content` in the way `evaluation_type` says."""

    evaluation_type: str
    content: str
    layer: str
    context: str = ""
    turn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerJudgement:
    """A judge's answer to a LayerTask.

    `is_blocked` is the judge's own decision, where it makes one; else the falsehood decides.
    `finds` is the kind of violation, where the judge names it; else it is the evaluation type's.
    """

    value: Neutrosophic
    evaluation_type: str
    model: str
    reasoning: str = ""
    usage: Usage = field(default_factory=Usage)
    is_cached: bool = False
    is_blocked: bool | None = None
    finds: Label | None = None


class Judge(Protocol):
    """Something that judges one layer; it raises EvaluationError when it cannot."""

    @property
    def name(self) -> str:
        """The model's name, as configured."""

    async def judge(self, task: LayerTask) -> LayerJudgement:
        """Return the judgement of one layer."""


# --- the embedded model ----------------------------------------------------------------------


class Encoder(Protocol):
    """The embedded readers as the rest of the product sees them: synchronous, pure, thread-safe.

    With `thorough` the second reader is asked as well.
    """

    def read_messages(
        self, texts: Sequence[str], *, thorough: bool = False
    ) -> tuple[MessageReading, ...]:
        """Judge each text on its own."""

    def read_context(
        self, messages: Sequence[Message], *, system: str = "", thorough: bool = False
    ) -> ContextReading:
        """Judge the last user turn in the light of the system prompt and all before it."""

    def read_documents(
        self, contents: Sequence[str], *, task: str = "", thorough: bool = False
    ) -> tuple[DocumentReading, ...]:
        """Judge untrusted contents beside the user's task."""

    def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return one unit vector per text."""


# --- signals ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHints:
    """What the client reports of how the message was written; unknown where None."""

    typing_ms: float | None = None
    keystrokes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilReading:
    """What the Frozen Instinct Layer found in the current message.

    `attacks` is what its violations do: `extraction`, `override`, `jailbreak`, `harm`.
    `is_blocking`: it blocks the message by itself, as every hard violation does.
    `raw_score` is the sum before it is clamped: what the design's examples are held against.
    """

    harm_score: float = 0.0
    raw_score: float = 0.0
    violated: tuple[str, ...] = ()
    attacks: frozenset[str] = frozenset()
    mentioned: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    rule_ids: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    escalation: tuple[str, ...] = ()
    counterfactual_severity: float = 0.0
    is_hard: bool = False
    is_blocking: bool = False
    reason: str = ""


# Compared by identity: numpy compares vectors element by element, which is no truth value.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """Key terms without the words that merely frame a question, and a unit vector or none."""

    terms: frozenset[str]
    vector: Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Subjects:
    """What a turn is about, and each remembered one before it: `past` goes with `state.recent`.

    `is_follow_up`: the turn only asks to go on, briefly, and says nothing else.
    """

    now: Subject
    past: tuple[Subject, ...] = ()
    is_follow_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """Everything the signals may look at for one turn. Frozen, complete, made once.

    `state` is the session before this turn. `message_risk` is the risk of the message taken
    alone, in [0,1]. `reading`, `context` and `embedding` are None where no model is in use.
    `concepts` is what the text speaks of in any language, with its places in the folded text.
    `rules` are the sentences of the system prompt that protect or forbid something.
    `earlier` holds the scores of the signals computed before, by name: none is computed twice.
    A signal that is not in use has none.
    """

    state: SessionState
    turn: int
    now: float
    text: str
    views: TextViews
    fil: FilReading
    subjects: Subjects
    message_risk: float
    reading: MessageReading | None = None
    context: ContextReading | None = None
    embedding: Vector | None = None
    concepts: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    rules: str = ""
    history_rewritten: bool = False
    client: ClientHints = field(default_factory=ClientHints)
    earlier: Mapping[str, float] = field(default_factory=dict)


Signal = Callable[[TurnContext], SignalScore]

# --- providers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What an upstream model answered."""

    text: str
    model: str
    finish_reason: str = "stop"
    usage: Usage = field(default_factory=Usage)


class Provider(Protocol):
    """An upstream language model; raises ProviderError when it fails."""

    @property
    def name(self) -> str:
        """The model's name, as configured."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, object] | None = None,
        max_tokens: int | None = None,
    ) -> Completion:
        """Return the whole answer; `schema` asks for JSON of that form where the endpoint can."""

    def stream(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        """Yield the answer in pieces as they come."""

    async def close(self) -> None:
        """Release connections."""


# --- stores ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKey:
    """A session's name within its tenant."""

    session_id: str
    tenant: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """Which sessions to list, the highest of `sort` first; `tenant` None means all tenants.

    `contains` is a literal part of the id. Every word of `search` must be in the id, or in the
    kept text of one turn, in any case. A session fits `turns` where one of its turns does.
    """

    tenant: str | None = "default"
    min_mode: int = 0
    contains: str = ""
    search: str = ""
    turns: TurnFilter = field(default_factory=TurnFilter)
    label: LabelFilter = LabelFilter.ANY
    sort: SessionSort = SessionSort.UPDATED
    is_ascending: bool = False
    limit: int = 100
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLabel:
    """What a person said of a session, or of one turn of it: a true attack or a false alarm."""

    verdict: str
    author: str
    timestamp: float
    note: str = ""
    turn: int | None = None


class SessionStore(Protocol):
    """Keeps states and transcripts. `save` is atomic: state and new entries, or nothing."""

    async def load(self, key: SessionKey) -> SessionState | None:
        """Return the newest state, or None."""

    async def save(
        self, state: SessionState, *, expected_version: int, entries: Sequence[TranscriptEntry] = ()
    ) -> None:
        """Store `state` (whose version is `expected_version + 1`) and append or complete `entries`.

        An entry whose position exists replaces it. Raises VersionConflict where the stored
        version is not `expected_version` (0: the session does not exist yet).
        """

    async def transcript(self, key: SessionKey) -> tuple[TranscriptEntry, ...]:
        """Return every stored message in order."""

    async def tail(self, key: SessionKey, count: int) -> tuple[TranscriptEntry, ...]:
        """Return the last `count` stored messages in order."""

    async def check_writable(self) -> None:
        """Write something that nobody sees; raises StoreError where that fails."""

    async def sessions(self, query: SessionQuery) -> tuple[SessionState, ...]:
        """Return the states that fit the query, in its order; none that cannot be read."""

    async def page(self, query: SessionQuery) -> SessionListPage:
        """Return the sessions that fit the query as rows of a list, and how many fit in all."""

    async def turns(self, query: TurnQuery) -> tuple[TurnRow, ...]:
        """Return judged turns, the newest first."""

    async def overview(self, query: OverviewQuery) -> Overview:
        """Sum up the judged turns of a stretch of time."""

    async def precision(self, tenant: str | None = "default") -> Precision:
        """Count what people said of flagged turns, those of the demo left out."""

    async def judged(self, query: JudgedQuery) -> tuple[JudgedTurn, ...]:
        """Return the next judged turns with their verdicts, by session and turn."""

    async def decide(self, decision: Decision) -> None:
        """Record what an operator decided."""

    async def decisions(self) -> tuple[Decision, ...]:
        """Return every decision, oldest first."""

    async def delete(self, key: SessionKey) -> bool:
        """Forget a session wholly; False where there was none."""

    async def put_label(self, key: SessionKey, label: SessionLabel) -> None:
        """Record a person's verdict; raises SessionNotFound.

        The newest label counts for the session, and for its turn or, without one, all its turns.
        """

    async def labels(self, key: SessionKey) -> tuple[SessionLabel, ...]:
        """Return the verdicts given on a session, oldest first."""

    async def redact(self, *, before: float) -> int:
        """Drop the text of transcript entries older than `before`; return how many."""

    def changes(self) -> AsyncIterator[SessionKey]:
        """Yield the key of each session as it is saved, by any process where the store can."""

    async def close(self) -> None:
        """Release files and connections."""
