"""Dropping old text from a session's state, so that retention holds there as well."""

from __future__ import annotations

from dataclasses import replace

from promptguard.state import SessionState, TurnRecord


def without_old_text(state: SessionState, before: float) -> SessionState | None:
    """Return the next version of `state` without excerpts older than `before`.

    None where there is nothing to drop. The version rises so that a turn under way, which still
    holds the old text, meets a conflict and does not write it back.
    """
    recent = tuple(_redacted(turn, before) for turn in state.recent)
    if recent == state.recent:
        return None
    return replace(state, recent=recent, version=state.version + 1)


def _redacted(turn: TurnRecord, before: float) -> TurnRecord:
    if turn.excerpt and turn.timestamp < before:
        turn = replace(turn, excerpt="")
    if turn.reply is not None and turn.reply.excerpt and turn.reply.timestamp < before:
        turn = replace(turn, reply=replace(turn.reply, excerpt=""))
    return turn
