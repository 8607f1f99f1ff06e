"""What goes into the judgement of a turn, and how a conversation is cut into turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from promptguard.conversation import Message, Role
from promptguard.protocols import ClientHints
from promptguard.turns.system_prompt import READ_CHARS


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


@dataclass(slots=True, kw_only=True)
class OpenTurn:
    """A turn as its messages come: put together once, or thousands take quadratic time."""

    text: str = ""
    system: str = ""
    timestamp: float | None = None
    contents: list[Content] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)

    def step(self) -> Step:
        """Return the turn, which is whole now, and the reply that followed."""
        return Step(
            turn=TurnInput(text=self.text, contents=tuple(self.contents), system=self.system),
            reply="\n".join(self.replies) if self.replies else None,
            timestamp=self.timestamp,
        )


def steps_of(messages: Sequence[Message]) -> tuple[Step, ...]:
    """Group messages into turns: each user message begins one.

    Tool results belong to the turn they follow, and before any user message they are a turn of
    their own. System messages are the developer's and hold from where they stand.
    """
    turns: list[OpenTurn] = []
    system = ""
    for message in messages:
        is_tool, said = message.role is Role.TOOL, message.content
        if message.role is Role.SYSTEM:
            # A later system message adds to the earlier ones, as far as any of it is read.
            system = f"{system}\n{said}".strip() if len(system) < READ_CHARS else system
        elif message.role is Role.ASSISTANT:
            if turns and said:
                turns[-1].replies.append(said)
        elif not is_tool or not turns:
            text, stamp = "" if is_tool else said, message.timestamp
            turns.append(OpenTurn(text=text, system=system, timestamp=stamp))
        if is_tool:
            turns[-1].contents.append(Content(text=said))
    return tuple(turn.step() for turn in turns)
