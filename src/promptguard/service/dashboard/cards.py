"""The stored messages of a session, put together turn by turn for showing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError

from promptguard.conversation import Role
from promptguard.service.dashboard.charts import Bar, Point
from promptguard.state import Action, Mode, TranscriptEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The stored verdict on a turn; `fault` says why there is none where no judge could judge."""

    action: Action
    risk: float = 0.0
    message_risk: float = 0.0
    mode: Mode = Mode.SAFE
    is_hard: bool = False
    tags: tuple[str, ...] = ()
    evidence: tuple[Bar, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One turn: what was said and what was decided; `user` is None where text is not kept."""

    turn: int
    timestamp: float
    user: str | None
    tools: tuple[str, ...] = ()
    replies: tuple[str, ...] = ()
    judged: Judged | None = None


def cards_of(entries: Sequence[TranscriptEntry]) -> tuple[Card, ...]:
    """Group a transcript by its turns, in order."""
    turns: dict[int, list[TranscriptEntry]] = {}
    for entry in entries:
        turns.setdefault(entry.turn, []).append(entry)
    return tuple(_card(turn, said) for turn, said in sorted(turns.items()))


def points_of(cards: Iterable[Card]) -> tuple[Point, ...]:
    """Return what the trajectory shows; turns that nobody could judge are left out."""
    return tuple(
        Point(
            turn=card.turn,
            risk=card.judged.risk,
            mode=card.judged.mode,
            action=card.judged.action,
        )
        for card in cards
        if card.judged is not None and not card.judged.fault
    )


def judged_from(text: str) -> Judged | None:
    """Read a stored verdict; None where there is none or it is of a form not known here."""
    if not text:
        return None
    try:
        found = _Stored.model_validate_json(text)
        return Judged(
            action=Action(found.action),
            risk=found.risk,
            message_risk=found.message_risk,
            mode=Mode[found.mode],
            is_hard=found.is_hard,
            tags=found.tags,
            evidence=tuple(
                Bar(name=e.signal, nats=e.nats, reason=e.reason) for e in found.evidence
            ),
            fault=found.fault,
        )
    except (ValidationError, ValueError, KeyError):
        return None


class _StoredEvidence(BaseModel):
    model_config = ConfigDict(extra="ignore")

    signal: str
    nats: float
    reason: str = ""


class _Stored(BaseModel):
    model_config = ConfigDict(extra="ignore")

    action: str
    risk: float = 0.0
    message_risk: float = 0.0
    mode: str = "SAFE"
    is_hard: bool = False
    tags: tuple[str, ...] = ()
    evidence: tuple[_StoredEvidence, ...] = ()
    fault: str = ""


def _card(turn: int, said: Sequence[TranscriptEntry]) -> Card:
    by_role = {role: [e for e in said if e.role is role] for role in Role}
    users = [entry.content for entry in by_role[Role.USER]]
    kept = [text for text in users if text is not None]
    user = "\n".join(kept) if len(kept) == len(users) else None
    verdicts = [found for entry in said if (found := judged_from(entry.verdict))]
    return Card(
        turn=turn,
        timestamp=said[0].timestamp,
        user=user,
        tools=tuple(e.content or "" for e in by_role[Role.TOOL]),
        replies=tuple(e.content or "" for e in by_role[Role.ASSISTANT]),
        judged=verdicts[0] if verdicts else None,
    )
