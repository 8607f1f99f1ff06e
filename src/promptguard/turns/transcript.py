"""A session's stored messages: how a turn is written down, and how it is read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from promptguard.conversation import Role
from promptguard.errors import InputError
from promptguard.state import TranscriptEntry
from promptguard.turns.remember import content_hash
from promptguard.turns.verdict import TurnInput, TurnVerdict
from promptguard.turns.walk import Step

Keeping = Literal["keep", "hash", "off"]


def entry_of(
    role: Role,
    text: str,
    *,
    turn: int,
    position: int,
    now: float,
    keeping: Keeping,
    verdict: str = "",
) -> TranscriptEntry:
    """Return one message as it is stored: with its text, its hash, or neither."""
    return TranscriptEntry(
        position=position,
        turn=turn,
        role=role,
        content=text if keeping == "keep" else None,
        content_hash="" if keeping == "off" else content_hash(text),
        timestamp=now,
        verdict=verdict,
    )


def verdict_json(verdict: TurnVerdict) -> str:
    """Return what is stored of a verdict: numbers and reasons, no user text."""
    return json.dumps(
        {
            "risk": verdict.risk,
            "message_risk": verdict.message_risk,
            "mode": verdict.mode.name,
            "action": verdict.action.value,
            "is_hard": verdict.is_hard,
            "tags": verdict.tags,
            "disguises": verdict.disguises,
            "evidence": [
                {"signal": e.signal, "nats": e.nats, "reason": e.reason} for e in verdict.evidence
            ],
        },
        ensure_ascii=False,
    )


def steps_from(entries: Sequence[TranscriptEntry]) -> tuple[Step, ...]:
    """Return stored messages as turns that can be judged again; needs their text."""
    if any(entry.content is None for entry in entries):
        raise InputError(
            "The text of this session was not kept (store_text, retention), so it cannot be "
            "judged again."
        )
    turns: dict[int, list[TranscriptEntry]] = {}
    for entry in entries:
        turns.setdefault(entry.turn, []).append(entry)
    return tuple(_step(said) for _, said in sorted(turns.items()))


def _step(said: Sequence[TranscriptEntry]) -> Step:
    texts = {role: [e.content or "" for e in said if e.role is role] for role in Role}
    return Step(
        turn=TurnInput(text="\n".join(texts[Role.USER]), tool_contents=tuple(texts[Role.TOOL])),
        reply="\n".join(texts[Role.ASSISTANT]) or None,
        timestamp=said[0].timestamp,
    )
