"""Labels that people gave to stored sessions, as cases to tune on."""

from __future__ import annotations

import json
from dataclasses import dataclass

from promptguard.conversation import Message, Role
from promptguard.protocols import SessionKey, SessionQuery, SessionStore
from promptguard.state import Action, SessionState, TranscriptEntry
from promptguard.validation.dataset import Case

SOURCE = "feedback"
PAGE = 100
_ATTACK = frozenset({"attack", "true_attack"})
_BENIGN = frozenset({"benign", "false_alarm"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """Labelled sessions; `without_text` were labelled, but their text was not kept."""

    cases: tuple[Case, ...]
    without_text: int


async def labelled_sessions(store: SessionStore, *, first_index: int = 0) -> Feedback:
    """Read every session on which a person gave a verdict; the latest verdict counts."""
    cases: list[Case] = []
    without_text = 0
    offset = 0
    while page := await store.sessions(SessionQuery(tenant=None, limit=PAGE, offset=offset)):
        offset += len(page)
        for state in page:
            verdict = await _verdict(store, state)
            if verdict is None:
                continue
            messages = await _messages(store, state)
            if messages:
                cases.append(_case(state, verdict, messages, first_index + len(cases)))
            else:
                without_text += 1
    return Feedback(cases=tuple(cases), without_text=without_text)


async def _verdict(store: SessionStore, state: SessionState) -> bool | None:
    """Return True for an attack, False for a false alarm, None where nobody said."""
    for label in reversed(await store.labels(_key(state))):
        spelling = label.verdict.strip().lower().replace(" ", "_")
        if spelling in _ATTACK | _BENIGN:
            return spelling in _ATTACK
    return None


async def _messages(store: SessionStore, state: SessionState) -> tuple[Message, ...]:
    entries = await store.transcript(_key(state))
    if any(entry.content is None for entry in entries):
        return ()
    blocked = {entry.turn for entry in entries if _was_blocked(entry)}
    # The guard's own refusals are left out: they would be evidence for themselves.
    return tuple(
        Message(role=entry.role, content=entry.content or "", timestamp=entry.timestamp)
        for entry in entries
        if entry.role is not Role.ASSISTANT or entry.turn not in blocked
    )


def _was_blocked(entry: TranscriptEntry) -> bool:
    try:
        return bool(json.loads(entry.verdict or "{}").get("action") == Action.BLOCK)
    except (ValueError, AttributeError):
        return False


def _case(state: SessionState, is_attack: bool, messages: tuple[Message, ...], index: int) -> Case:
    return Case(
        index=index,
        id=f"{state.tenant}/{state.session_id}",
        is_attack=is_attack,
        label="attack" if is_attack else "benign",
        messages=messages,
        source=SOURCE,
    )


def _key(state: SessionState) -> SessionKey:
    return SessionKey(session_id=state.session_id, tenant=state.tenant)
