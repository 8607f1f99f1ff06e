"""The turns to judge in a request: those of an unknown history, and its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from promptguard.conversation import Role
from promptguard.service.history import ComparableMessage, Comparison, HistoryKind
from promptguard.turns.input import Content, Step, TurnInput

MAX_IMPORTED = 64
_MERGED_CHARS = 40_000


def steps_in(comparison: Comparison, system: str) -> list[Step]:
    """Return the turns to judge, in order; the last is the request's own."""
    users = [item.content for item in comparison.new if item.role is Role.USER]
    others = [item.as_content for item in comparison.new if item.role is not Role.USER]
    if comparison.kind is HistoryKind.FIRST:
        earlier = _imported(comparison.unseen)
    else:
        earlier = [_step_of(item) for item in comparison.unseen if item.role is not Role.ASSISTANT]
        others += [item.as_content for item in comparison.unseen if item.role is Role.ASSISTANT]
    earlier = [*_merged(earlier[:-MAX_IMPORTED]), *earlier[-MAX_IMPORTED:]]
    last = Step(turn=TurnInput(text="\n".join(users), contents=tuple(others)))
    return [replace(s, turn=replace(s.turn, system=system)) for s in (*earlier, last)]


def _imported(messages: Sequence[ComparableMessage]) -> list[Step]:
    """Return a history as turns; contents keep their origins."""
    steps: list[Step] = []
    opening: list[Content] = []
    for item in messages:
        if item.role is Role.USER:
            steps.append(_step_of(item))
        elif not steps:
            opening.append(item.as_content)
        elif item.role is Role.ASSISTANT:
            before = steps[-1].reply
            reply = item.content if before is None else f"{before}\n{item.content}"
            steps[-1] = replace(steps[-1], reply=reply)
        else:
            turn = steps[-1].turn
            more = replace(turn, contents=(*turn.contents, item.as_content))
            steps[-1] = replace(steps[-1], turn=more)
    # What stands before the first user message, an assistant's included, nobody asked for.
    first = [Step(turn=TurnInput(text="", contents=tuple(opening)))] if opening else []
    return [*first, *steps]


def _step_of(item: ComparableMessage) -> Step:
    if item.role is Role.USER:
        return Step(turn=TurnInput(text=item.content))
    return Step(turn=TurnInput(text="", contents=(item.as_content,)))


def _merged(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield a long past in fewer, larger turns: one request must not cost thousands of them."""
    texts: list[str] = []
    contents: list[Content] = []
    size = 0
    for step in steps:
        length = len(step.turn.text) + sum(len(c.text) for c in step.turn.contents)
        if size and size + length > _MERGED_CHARS:
            yield Step(turn=TurnInput(text="\n".join(texts), contents=tuple(contents)))
            texts, contents, size = [], [], 0
        texts += [step.turn.text] if step.turn.text else []
        contents += step.turn.contents
        size += length
    if texts or contents:
        yield Step(turn=TurnInput(text="\n".join(texts), contents=tuple(contents)))
