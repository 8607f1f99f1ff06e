"""What goes into the judgement of a turn, and how a conversation is cut into turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from promptguard.conversation import Message, Role
from promptguard.protocols import ClientHints


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Text that came with a turn and that nobody vouches for: a tool's result, a document.

    `origin` says where it stood, such as `tool`, `document` or `tools[2].description`.
    """

    text: str
    origin: str = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInput:
    """One turn as it arrived, by layers.

    `system` is the application's prompt, `text` the user's words, `contents` everything that is
    untrusted. `judged` is a further judge's falsehood in [0,1] where one was asked.
    `allowance` says why an operator lets these very words pass, empty where nobody does.
    """

    text: str
    contents: tuple[Content, ...] = ()
    system: str = ""
    client: ClientHints = field(default_factory=ClientHints)
    history_rewritten: bool = False
    judged: float | None = None
    allowance: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn, the reply that followed, and when it was said."""

    turn: TurnInput
    reply: str | None = None
    timestamp: float | None = None


def steps_of(messages: Sequence[Message]) -> tuple[Step, ...]:
    """Group messages into turns: each user message begins one.

    Tool results belong to the turn they follow, and before any user message they are a turn of
    their own. System messages are the developer's and hold from where they stand.
    """
    steps: list[Step] = []
    system = ""
    for message in messages:
        if message.role is Role.SYSTEM:
            # A later system message adds to the earlier ones and takes nothing back.
            system = f"{system}\n{message.content}".strip()
        elif message.role is Role.USER or (message.role is Role.TOOL and not steps):
            steps.append(_first(message, system))
        elif message.role is Role.TOOL:
            turn = steps[-1].turn
            more = replace(turn, contents=(*turn.contents, Content(text=message.content)))
            steps[-1] = replace(steps[-1], turn=more)
        elif message.role is Role.ASSISTANT and steps and message.content:
            before = steps[-1].reply
            reply = message.content if before is None else f"{before}\n{message.content}"
            steps[-1] = replace(steps[-1], reply=reply)
    return tuple(steps)


def _first(message: Message, system: str) -> Step:
    is_tool = message.role is Role.TOOL
    turn = TurnInput(
        text="" if is_tool else message.content,
        contents=(Content(text=message.content),) if is_tool else (),
        system=system,
    )
    return Step(turn=turn, timestamp=message.timestamp)
