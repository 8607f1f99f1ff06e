"""Does the order of turns matter? Attacks are judged once more with their turns shuffled."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from promptguard.conversation import Message, Role
from promptguard.turns.walk import Step, steps_of
from promptguard.validation.dataset import Case
from promptguard.validation.outcome import Outcome

MOST = 200
LEAST_TURNS = 3
MATERIAL = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderTest:
    """Attack conversations as they were and shuffled.

    `changed` is the share whose final risk moved by at least 0.01, `mean_shift` the mean of
    the final risk as spoken less that of the shuffled one.
    """

    conversations: int
    changed: float | None
    mean_shift: float | None


def shuffled_cases(cases: Sequence[Case], *, seed: int, most: int = MOST) -> tuple[Case, ...]:
    """Return a drawn sample of attack conversations with their turns in another order."""
    rng = random.Random(seed)
    long = [c for c in cases if c.is_attack and len(steps_of(c.messages)) >= LEAST_TURNS]
    chosen = rng.sample(long, min(most, len(long)))
    return tuple(_shuffled(case, rng) for case in sorted(chosen, key=lambda case: case.index))


def order_test(spoken: Sequence[Outcome], shuffled: Sequence[Outcome]) -> OrderTest:
    """Compare the outcomes of shuffled cases with those of the same cases as they were."""
    by_index = {outcome.index: outcome for outcome in spoken}
    pairs = [(by_index[o.index], o) for o in shuffled if not o.error]
    shifts = [as_was.risks[-1] - other.risks[-1] for as_was, other in pairs if not as_was.error]
    if not shifts:
        return OrderTest(conversations=0, changed=None, mean_shift=None)
    return OrderTest(
        conversations=len(shifts),
        changed=fmean(abs(shift) >= MATERIAL for shift in shifts),
        mean_shift=fmean(shifts),
    )


def _shuffled(case: Case, rng: random.Random) -> Case:
    steps = list(steps_of(case.messages))
    order = list(range(len(steps)))
    while order == sorted(order):
        rng.shuffle(order)
    said = [message for place in order for message in _messages(steps[place])]
    return replace(case, messages=tuple(said), attack_turn=None)


def _messages(step: Step) -> Iterator[Message]:
    yield Message(role=Role.USER, content=step.turn.text)
    for content in step.turn.tool_contents:
        yield Message(role=Role.TOOL, content=content)
    if step.reply is not None:
        yield Message(role=Role.ASSISTANT, content=step.reply)
