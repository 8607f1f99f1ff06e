"""The verdict on one turn: one value, one JSON form, from the judge to store, API and screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError

from promptguard.errors import DataError


class Mode(IntEnum):
    """How a conversation stands; the order is the order of risk."""

    SAFE = 0
    CAUTIOUS = 1
    ELEVATED = 2
    SUSPECT = 3
    CRITICAL = 4
    UNSAFE = 5


class Action(StrEnum):
    """What is done about a turn, mildest first.

    `strip` lets the turn go on with its poisoned content replaced by a note. `severity` is where
    an action stands in this order, from 0.
    """

    severity: int

    def __new__(cls, value: str) -> Self:
        """Make a member and number it."""
        member = str.__new__(cls, value)
        member._value_ = value
        # Only the members before it exist yet, so that their number is its place in the order.
        member.severity = len(cls.__members__)
        return member

    ALLOW = "allow"
    ANNOTATE = "annotate"
    STEER = "steer"
    REVIEW = "review"
    STRIP = "strip"
    BLOCK = "block"


# Steering is left out: it lets the turn pass.
FLAGGING = frozenset({Action.BLOCK, Action.STRIP, Action.REVIEW})


def _mode_of(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in Mode.__members__:
        raise ValueError("not a mode")
    return Mode[value]


ModeName = Annotated[
    Mode,
    BeforeValidator(_mode_of),
    PlainSerializer(lambda mode: mode.name, return_type=str),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalScore:
    """A signal's result for one turn: a score in [0,1], higher is riskier, and why in one line.

    `parts` carries numbers that later turns or readers need (such as a posterior), by name.
    """

    name: str
    score: float
    reason: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What `signal` adds to the log-odds of `turn`, in nats."""

    turn: int
    signal: str
    nats: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentFinding:
    """The judgement of one untrusted content: a tool result, a document, a tool's description.

    `index` counts the contents of the turn from 0; `start` and `end` are the characters that
    speak most for an order that is not the user's.
    """

    index: int
    origin: str
    risk: float
    action: Action
    reason: str = ""
    start: int = 0
    end: int = 0
    is_truncated: bool = False

    @property
    def is_withheld(self) -> bool:
        """Whether no model may see the content, in its own turn or in a later one."""
        return self.action in (Action.STRIP, Action.BLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Characters of the user's message that a rule or a reader pointed at."""

    start: int
    end: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement of one turn.

    `turn_risk` is how likely answering this turn serves an attack, given all before; it decides
    `action`. `accumulated_risk` is what the session has shown; `mode` names its range. `prior`
    and the nats of `evidence` add up to the log-odds of `turn_risk`. `readers` were asked.
    `fault` says why no judge could judge, or why a further one did not; then `action` is policy.
    `latency_ms` is how long judging took, in the stored form only.
    """

    turn: int
    action: Action
    mode: ModeName = Mode.SAFE
    turn_risk: float = 0.0
    accumulated_risk: float = 0.0
    message_risk: float = 0.0
    is_hard: bool = False
    is_locked: bool = False
    prior: float = 0.0
    evidence: tuple[Evidence, ...] = ()
    scores: tuple[SignalScore, ...] = ()
    content: tuple[ContentFinding, ...] = ()
    directives: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    disguises: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    readers: tuple[str, ...] = ()
    is_truncated: bool = False
    fault: str = ""
    latency_ms: float | None = None

    @property
    def top_evidence(self) -> tuple[Evidence, ...]:
        """What speaks most for an attack, the strongest first."""
        speaking = [entry for entry in self.evidence if entry.nats > 0]
        return tuple(sorted(speaking, key=lambda entry: -entry.nats))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form as plain data."""
        body: dict[str, Any] = _VERDICT.dump_python(self, mode="json")
        return body

    def to_json(self) -> str:
        """Return the one JSON form: numbers and reasons, no user text."""
        return _VERDICT.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Verdict:
        """Read a stored verdict."""
        try:
            return _VERDICT.validate_json(text)
        except ValidationError as error:
            raise DataError(
                # Counted and not quoted: a fault would show what was stored.
                f"A stored verdict does not have the expected form ({error.error_count()} faults)."
            ) from None


_VERDICT: TypeAdapter[Verdict] = TypeAdapter(Verdict)
