"""How a probe answers: kinds of answers, and strategies as ordered tactics filled from a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from random import Random

import yaml

from promptguard.errors import DataError
from promptguard.probe.topics import Topic
from promptguard.rubrics.answer import read_answer
from promptguard.rubrics.position import Position


class AnswerKind(StrEnum):
    """The manner of an answer."""

    CONFIDENT = "confident"
    HESITANT = "hesitant"
    HEDGING = "hedging"
    UNCLEAR = "unclear"


class Strategy(StrEnum):
    """Ways to make a model give up its position."""

    ESCALATE = "escalate"
    ACCUSE = "accuse"
    EXPLOIT_NUANCE = "exploit-nuance"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tactic:
    """One step: its name and the words with fields to fill."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Playbook:
    """The wording of one language: the opening and every strategy's tactics."""

    opening: str
    tactics: Mapping[Strategy, tuple[Tactic, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What one conversation draws from its topic, in a seeded order."""

    topic: Topic
    arguments: Mapping[Position, tuple[str, ...]]
    edge_cases: tuple[str, ...]
    stakeholders: tuple[str, ...]


def material_of(topic: Topic, draw: Random) -> Material:
    """Return the topic's texts in an order drawn with `draw`.

    Against a yes stand the arguments against, against a no those for; with no position taken,
    those against.
    """
    # The order of these draws is part of what a seed fixes.
    pro, contra = _shuffled(topic.arguments_for, draw), _shuffled(topic.arguments_against, draw)
    return Material(
        topic=topic,
        arguments={Position.YES: contra, Position.NO: pro, Position.UNCLEAR: contra},
        edge_cases=_shuffled(topic.edge_cases, draw),
        stakeholders=_shuffled(topic.stakeholders, draw),
    )


def classify_answer(answer: str, *, asked: str = "") -> AnswerKind:
    """Return how `answer` to `asked` is given.

    A side without doubt is confident, with doubt hesitant; a side refused in words is hedging,
    and anything else unclear.
    """
    reading = read_answer(answer, asked=asked)
    if reading.position is not Position.UNCLEAR:
        return AnswerKind.HESITANT if reading.is_hesitant else AnswerKind.CONFIDENT
    return AnswerKind.HEDGING if reading.is_hedged else AnswerKind.UNCLEAR


def opening_of(topic: Topic) -> str:
    """Return the first message: the question, with the request for a clear yes or no."""
    return playbook(topic.language).opening.format(question=topic.question)


def message_of(tactic: Tactic, material: Material, taken: Position) -> str:
    """Return the tactic's words against the position `taken`."""
    arguments = material.arguments[taken]
    return tactic.text.format(
        question=material.topic.question,
        argument=arguments[0],
        argument2=arguments[1],
        edge_case=material.edge_cases[0],
        stakeholder=material.stakeholders[0],
    )


def tactics_of(strategy: Strategy, language: str) -> tuple[Tactic, ...]:
    """Return a strategy's steps in order."""
    return playbook(language).tactics[strategy]


def playbook(language: str) -> Playbook:
    """Return the wording for a language; raises DataError where there is none."""
    books = _playbooks()
    if language not in books:
        known = ", ".join(sorted(books))
        raise DataError(f"There are no tactics in language {language!r}; known: {known}.")
    return books[language]


@cache
def _playbooks() -> dict[str, Playbook]:
    source = files("promptguard").joinpath("data/probe/strategies.yaml")
    body = yaml.safe_load(source.read_text(encoding="utf-8"))
    return {
        language: Playbook(
            opening=book["opening"],
            tactics={
                strategy: tuple(Tactic(**step) for step in book["strategies"][strategy.value])
                for strategy in Strategy
            },
        )
        for language, book in body.items()
    }


def _shuffled(texts: tuple[str, ...], draw: Random) -> tuple[str, ...]:
    return tuple(draw.sample(texts, k=len(texts)))
