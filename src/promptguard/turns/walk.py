"""A whole conversation, judged turn by turn from its messages alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from promptguard.conversation import Message, Role
from promptguard.signals.replies import classify_reply
from promptguard.state import ReplyRecord, SessionState, excerpt_of
from promptguard.turns.judge import TurnJudge
from promptguard.turns.verdict import TurnInput, TurnVerdict

SECONDS_BETWEEN_TURNS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One user turn with its tool content, the reply that followed, and when it was said."""

    turn: TurnInput
    reply: str | None = None
    timestamp: float | None = None


def steps_of(messages: Sequence[Message]) -> tuple[Step, ...]:
    """Group messages into turns: each user message begins one.

    Tool results belong to the turn they follow, and before any user message they are a turn of
    their own. System messages are the developer's.
    """
    steps: list[Step] = []
    for message in messages:
        if message.role is Role.USER or (message.role is Role.TOOL and not steps):
            steps.append(_first(message))
        elif message.role is Role.TOOL:
            turn = steps[-1].turn
            more = replace(turn, tool_contents=(*turn.tool_contents, message.content))
            steps[-1] = replace(steps[-1], turn=more)
        elif message.role is Role.ASSISTANT and steps and message.content:
            said = steps[-1].reply
            reply = message.content if said is None else f"{said}\n{message.content}"
            steps[-1] = replace(steps[-1], reply=reply)
    return tuple(steps)


def _first(message: Message) -> Step:
    is_tool = message.role is Role.TOOL
    turn = TurnInput(
        text="" if is_tool else message.content,
        tool_contents=(message.content,) if is_tool else (),
    )
    return Step(turn=turn, timestamp=message.timestamp)


def walk(
    judge: TurnJudge, steps: Sequence[Step], *, session_id: str = "walk", start: float = 0.0
) -> Iterator[tuple[TurnVerdict, SessionState]]:
    """Judge turn after turn; yields each verdict with the state after it.

    Missing timestamps count as half a minute between turns.
    """
    state = SessionState(session_id=session_id, created=start)
    now = start
    for step in steps:
        now = step.timestamp if step.timestamp is not None else now + SECONDS_BETWEEN_TURNS
        verdict, state = judge.judge(state, step.turn, now=now)
        if step.reply is not None:
            state = state.with_reply(verdict.turn, reply_record(step.reply, now))
        yield verdict, state


def reply_record(text: str, now: float) -> ReplyRecord:
    """Return what is kept of an assistant's reply."""
    return ReplyRecord(kind=classify_reply(text), excerpt=excerpt_of(text), timestamp=now)
