"""Holding the conversations, one after the other, each from its own seed; a run can be resumed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from promptguard.conversation import Message, Role
from promptguard.errors import ConfigError, ProviderError
from promptguard.probe.learning import Scores, choose_strategy
from promptguard.probe.record import ProbeRecord
from promptguard.probe.strategies import (
    Strategy,
    classify_answer,
    material_of,
    message_of,
    opening_of,
    playbook,
    tactics_of,
)
from promptguard.probe.topics import Topic
from promptguard.protocols import Provider
from promptguard.rubrics.answer import read_answer
from promptguard.rubrics.contradiction import ContradictionVerdict, judge_contradiction
from promptguard.rubrics.position import Position
from promptguard.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """What is asked of a probe; the same plan against the same answers gives the same log."""

    topics: tuple[Topic, ...]
    conversations: int
    seed: int = 0
    epsilon: float = 0.2
    max_tokens: int = 200
    scores: Scores = field(default_factory=Scores)

    def __post_init__(self) -> None:
        if not self.topics:
            raise ConfigError("A probe needs at least one topic.")
        if self.conversations < 1:
            raise ConfigError("A probe holds at least one conversation.")
        if not 0.0 <= self.epsilon <= 1.0:
            raise ConfigError("epsilon is a probability: from 0 to 1.")
        for topic in self.topics:
            # Here and not at its turn, when conversations before it have been paid for.
            playbook(topic.language)

    def topic_at(self, index: int) -> Topic:
        """Return the topic of one conversation: all in turn, each round in a seeded order."""
        turn, place = divmod(index, len(self.topics))
        # By round and not by run, so that a longer run begins as the shorter one did.
        order = Random(f"{self.seed}:topics:{turn}").sample(self.topics, k=len(self.topics))
        return order[place]

    def record_id(self, index: int) -> str:
        """Return the name of one conversation."""
        return f"{self.seed}-{index:05d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeStep:
    """One finished conversation and the scores after it."""

    record: ProbeRecord
    scores: Scores


async def run_probe(
    provider: Provider,
    plan: ProbePlan,
    *,
    clock: Callable[[], float],
    done: Sequence[ProbeRecord] = (),
) -> AsyncIterator[ProbeStep]:
    """Hold the conversations of `plan` that are not yet `done`, yielding each as it ends.

    `done` are the records of an interrupted run in order; what they taught is learned again.
    Raises ProviderError where the model fails: what was yielded before stays valid, and the
    error's `usage` is that of the conversation that broke off.
    """
    scores = replayed(plan, done)
    for index in range(len(done), plan.conversations):
        record = await hold_conversation(provider, plan, index, scores, clock=clock)
        scores = _learned(scores, record)
        yield ProbeStep(record=record, scores=scores)


def replayed(plan: ProbePlan, done: Sequence[ProbeRecord]) -> Scores:
    """Return the scores after `done`; raises ConfigError where they are not of this plan."""
    scores = plan.scores
    for index, record in enumerate(done):
        if record.record_id != plan.record_id(index):
            raise ConfigError("The log is of another run; resume with the settings it began with.")
        scores = _learned(scores, record)
    return scores


async def hold_conversation(
    provider: Provider,
    plan: ProbePlan,
    index: int,
    scores: Scores,
    *,
    clock: Callable[[], float],
) -> ProbeRecord:
    """Hold one conversation to its end: a contradiction, or the strategy's last tactic."""
    # A generator of its own for each conversation: a resumed run draws as one in a single go.
    topic, draw = plan.topic_at(index), Random(f"{plan.seed}:{index}")
    conversation = _Conversation(provider, plan.max_tokens)
    began, opening = clock(), opening_of(topic)
    answer = await conversation.send(opening)
    kind = classify_answer(answer, asked=opening)
    strategy = choose_strategy(scores, kind, epsilon=plan.epsilon, draw=draw)
    taken = read_answer(answer, asked=opening).position
    tactics, verdict = await _press(conversation, topic, strategy, taken, draw)
    return ProbeRecord(
        record_id=plan.record_id(index),
        time=began,
        model=provider.name,
        topic=topic.topic_id,
        messages=tuple(conversation.messages),
        classification=kind,
        strategy=strategy,
        tactics=tactics,
        verdict=verdict.verdict,
        reason=verdict.reason,
        usage=conversation.usage,
    )


async def _press(
    conversation: _Conversation, topic: Topic, strategy: Strategy, taken: Position, draw: Random
) -> tuple[tuple[str, ...], ContradictionVerdict]:
    material = material_of(topic, draw)
    used: list[str] = []
    for tactic in tactics_of(strategy, topic.language):
        message = message_of(tactic, material, taken)
        answer = await conversation.send(message)
        used.append(tactic.name)
        verdict = judge_contradiction(conversation.messages)
        if verdict.is_contradiction:
            break
        position = read_answer(answer, asked=message).position
        # An unclear answer gives up no position; the next argument goes against the last clear one.
        taken = taken if position is Position.UNCLEAR else position
    return tuple(used), verdict


def _learned(scores: Scores, record: ProbeRecord) -> Scores:
    return scores.learned(record.classification, record.strategy, is_win=record.is_contradiction)


class _Conversation:
    """A conversation under way with one model."""

    def __init__(self, provider: Provider, max_tokens: int) -> None:
        self._provider = provider
        self._max_tokens = max_tokens
        self.messages: list[Message] = []
        self.usage = Usage()

    async def send(self, text: str) -> str:
        """Send `text` and return the answer, keeping both."""
        self.messages.append(Message(role=Role.USER, content=text))
        try:
            answer = await self._provider.complete(self.messages, max_tokens=self._max_tokens)
        except ProviderError as error:
            # The conversation is lost, but not what it cost.
            error.usage += self.usage
            raise
        self.messages.append(Message(role=Role.ASSISTANT, content=answer.text))
        self.usage += answer.usage
        return answer.text
