"""Turns and sessions for testing signals, built from plain words and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from stored_values import make_record

from promptguard.protocols import FilReading, TurnContext
from promptguard.signals.intent import gathering_step
from promptguard.signals.subject import subjects_of
from promptguard.state import ReplyKind, ReplyRecord, SessionState, TurnRecord
from promptguard.text.read import read_text
from promptguard.text.vocabulary import key_terms
from promptguard.vector import Vector, pack_vector


def direction(*components: float) -> Vector:
    """Return a unit vector that points as told, spread out so that packing keeps it."""
    vector = np.zeros(8, dtype=np.float32)
    vector[: len(components)] = components
    spread = np.repeat(vector, 32)
    return (spread / np.linalg.norm(spread)).astype(np.float32)


def past_turn(
    text: str = "hello",
    *,
    turn: int = 0,
    risk: float = 0.0,
    reply: ReplyKind | None = None,
    vector: Vector | None = None,
    **fields: Any,
) -> TurnRecord:
    """Return what would be remembered of a turn that said `text`."""
    values: dict[str, Any] = {
        "turn": turn,
        "excerpt": text,
        "timestamp": 60.0 * turn,
        "message_risk": risk,
        "turn_risk": risk,
        "key_terms": key_terms(text),
        "gathering_step": gathering_step(read_text(text).folded),
        "embedding": "" if vector is None else pack_vector(vector),
        "reply": reply and ReplyRecord(kind=reply, excerpt="", timestamp=60.0 * turn),
    }
    return make_record(**(values | fields))


def current_turn(
    text: str = "hello",
    *,
    past: Sequence[TurnRecord] = (),
    risk: float = 0.0,
    state: dict[str, Any] | None = None,
    **fields: Any,
) -> TurnContext:
    """Return the context of a turn that says `text` after `past`."""
    session = SessionState(session_id="s", recent=tuple(past), **(state or {}))
    values: dict[str, Any] = {
        "state": session,
        "turn": len(past),
        "now": 60.0 * len(past),
        "text": text,
        "views": read_text(text),
        "fil": FilReading(),
        "message_risk": risk,
    }
    values |= fields
    about = subjects_of(session, values["views"], values["fil"], values.get("embedding"))
    return TurnContext(**({"subjects": about} | values))


def past_turns(*said: str, **fields: Any) -> tuple[TurnRecord, ...]:
    """Return several remembered turns, numbered from 0, that share `fields`."""
    return tuple(past_turn(text, turn=turn, **fields) for turn, text in enumerate(said))
