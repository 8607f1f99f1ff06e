"""What goes into the judgement of a turn, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass, field

from promptguard.protocols import ClientHints, FilReading, SignalScore
from promptguard.state import Action, Evidence, Mode
from promptguard.text.views import DecodedView


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInput:
    """One user turn as it arrived: the message, and the tool results that came with it.

    `judged` is a further judge's falsehood in [0,1] where one was asked.
    """

    text: str
    tool_contents: tuple[str, ...] = ()
    client: ClientHints = field(default_factory=ClientHints)
    history_rewritten: bool = False
    judged: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnVerdict:
    """The judgement of one turn. `evidence` is what this turn added; scores are all signals'."""

    turn: int
    risk: float
    message_risk: float
    mode: Mode
    action: Action
    is_hard: bool
    evidence: tuple[Evidence, ...]
    scores: tuple[SignalScore, ...]
    fil: FilReading
    tags: tuple[str, ...] = ()
    disguises: tuple[str, ...] = ()
    decoded: tuple[DecodedView, ...] = ()
    is_truncated: bool = False

    @property
    def top_evidence(self) -> tuple[Evidence, ...]:
        """What speaks most for an attack, the strongest first."""
        speaking = [entry for entry in self.evidence if entry.nats > 0]
        return tuple(sorted(speaking, key=lambda entry: -entry.nats))
