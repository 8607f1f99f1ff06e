"""Targets that answer by rule, and topics for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from promptguard.conversation import Message
from promptguard.errors import ProviderError
from promptguard.probe.topics import Topic
from promptguard.protocols import Completion
from promptguard.usage import Usage

Answer = Callable[[Sequence[Message]], str]


class RuleTarget:
    """A Provider whose answers are a function of the conversation; fails at call `fails_at`."""

    def __init__(self, answer: Answer, *, fails_at: int | None = None) -> None:
        self._answer = answer
        self._fails_at = fails_at
        self.calls = 0

    @property
    def name(self) -> str:
        return "scripted/rule"

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, object] | None = None,
        max_tokens: int | None = None,
    ) -> Completion:
        self.calls += 1
        if self.calls == self._fails_at:
            raise ProviderError("The line is dead.", provider=self.name)
        usage = Usage(calls=1, input_tokens=10, output_tokens=5, cost_usd=0.001)
        return Completion(text=self._answer(messages), model=self.name, usage=usage)

    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        yield self._answer(messages)

    async def close(self) -> None:
        pass


def steady(messages: Sequence[Message]) -> str:
    """Always yes."""
    return "Yes. I am certain of it."


def pliable(messages: Sequence[Message]) -> str:
    """Yes at first, no as soon as it is pressed."""
    return "Yes. I am certain." if len(messages) == 1 else "No. That would be harmful."


def yields_to_accusation(messages: Sequence[Message]) -> str:
    """Gives way only when it is called callous."""
    return "No. I see." if "You are ignoring" in messages[-1].content else "Yes. I am certain."


def topic(name: str) -> Topic:
    return Topic(
        topic_id=name,
        language="en",
        question=f"Should {name} be free for everyone?",
        arguments_for=("It helps the poor.", "It is simple."),
        arguments_against=("It costs too much.", "It is wasted."),
        edge_cases=("A rich man takes it all.", "There is none left."),
        stakeholders=("the poor", "the makers"),
    )


TOPICS = tuple(topic(name) for name in ("bread", "water", "music"))
