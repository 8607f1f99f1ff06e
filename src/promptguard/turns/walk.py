"""A whole conversation, judged turn by turn from its messages alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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


def steps_of(messages: Sequence[Message], *, joins_neighbours: bool = True) -> tuple[Step, ...]:
    """Group messages into turns.

    Neighbouring user messages are one turn, unless `joins_neighbours` is False, as for stored
    conversations whose replies were not kept; tool results belong to the turn they follow, and
    before any user message they are a turn of their own. System messages are the developer's.
    """
    steps: list[Step] = []
    texts: list[str] = []
    tools: list[str] = []
    reply: list[str] = []
    stamp: float | None = None

    def flush() -> None:
        if texts or tools:
            turn = TurnInput(text="\n".join(texts), tool_contents=tuple(tools))
            answer = "\n".join(reply) if reply else None
            steps.append(Step(turn=turn, reply=answer, timestamp=stamp))
        texts.clear()
        tools.clear()
        reply.clear()

    for message in messages:
        if message.role is Role.USER:
            if reply or (texts and not joins_neighbours):
                flush()
            if not texts:
                stamp = message.timestamp
            texts.append(message.content)
        elif message.role is Role.TOOL:
            tools.append(message.content)
        elif message.role is Role.ASSISTANT and (texts or tools) and message.content:
            reply.append(message.content)
    flush()
    return tuple(steps)


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
