"""Judges and providers that say what a test tells them to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from promptguard.conversation import Message
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.errors import EvaluationError, PromptGuardError
from promptguard.protocols import Completion, LayerJudgement, LayerTask
from promptguard.usage import Usage

NORMAL = Neutrosophic(0.9, 0.1, 0.05)
ATTACK = Neutrosophic(0.1, 0.2, 0.9)
DOUBT = Neutrosophic(0.5, 0.7, 0.4)


class ScriptedJudge:
    """Answers by evaluation type; remembers what it was asked."""

    def __init__(
        self,
        answers: Mapping[str, Neutrosophic | Exception] | None = None,
        *,
        default: Neutrosophic | Exception = NORMAL,
        name: str = "scripted",
        usage: Usage | None = None,
    ) -> None:
        self._answers = dict(answers or {})
        self._default = default
        self._name = name
        self._usage = usage or Usage(calls=1, input_tokens=10, output_tokens=5, cost_usd=0.01)
        self.asked: list[LayerTask] = []

    @property
    def name(self) -> str:
        return self._name

    async def judge(self, task: LayerTask) -> LayerJudgement:
        self.asked.append(task)
        answer = self._answers.get(task.evaluation_type, self._default)
        if isinstance(answer, Exception):
            raise answer
        return LayerJudgement(
            value=answer,
            evaluation_type=task.evaluation_type,
            model=self.name,
            usage=self._usage,
        )


class LocalLikeJudge(ScriptedJudge):
    """Knows two evaluation types and its own threshold, as the embedded judge does."""

    evaluation_types = ("ayni_relational", "relational_structure")
    decision_threshold = 0.5


class HoldingJudge(ScriptedJudge):
    """Keeps every caller until released; knows how many wait and how many were cancelled."""

    def __init__(self, name: str = "holding") -> None:
        super().__init__(name=name)
        self.release = asyncio.Event()
        self.is_asked = asyncio.Event()
        self.waiting = 0
        self.most_waiting = 0
        self.cancelled = 0

    async def judge(self, task: LayerTask) -> LayerJudgement:
        self.waiting += 1
        self.is_asked.set()
        self.most_waiting = max(self.most_waiting, self.waiting)
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        return await super().judge(task)


class ScriptedProvider:
    """A language model that gives the replies of a list, or what a function makes of a request."""

    def __init__(
        self, replies: Sequence[str | PromptGuardError] | Callable[[Sequence[Message]], str]
    ) -> None:
        self._replies = replies if callable(replies) else list(replies)
        self.requests: list[tuple[Message, ...]] = []
        self.schemas: list[Mapping[str, object] | None] = []
        self.is_closed = False

    @property
    def name(self) -> str:
        return "vendor/model"

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, object] | None = None,
        max_tokens: int | None = None,
    ) -> Completion:
        self.requests.append(tuple(messages))
        self.schemas.append(schema)
        reply = self._replies(messages) if callable(self._replies) else self._replies.pop(0)
        if isinstance(reply, PromptGuardError):
            raise reply
        usage = Usage(calls=1, input_tokens=100, output_tokens=20, cost_usd=0.002)
        return Completion(text=reply, model=self.name, usage=usage)

    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        yield (await self.complete(messages)).text

    async def close(self) -> None:
        self.is_closed = True


def cannot_judge(kind: str = "ayni_relational") -> EvaluationError:
    return EvaluationError("no", evaluation_type=kind, model="scripted", layer="USER")
