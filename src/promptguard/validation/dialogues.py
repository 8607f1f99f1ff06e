"""Conversations of several turns: how early attacks are seen, and whether their order matters."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median

from promptguard.conversation import Message, Role
from promptguard.runs.intervals import share_of
from promptguard.runs.report import Dialogues, OrderTest, Timing
from promptguard.turns.input import Step, steps_of
from promptguard.validation.contenders import Outcome
from promptguard.validation.dataset import Case
from promptguard.validation.groups import Judged
from promptguard.validation.metrics import Redrawn

PARTS = 10
MOST_SHUFFLED = 200
LEAST_TURNS = 3
MATERIAL = 0.01


def dialogues_of(judged: Sequence[Judged], pool: Redrawn) -> Dialogues:
    """Measure the cases that have at least two turns."""
    talks = [(case, o) for case, o in judged if o.turns >= 2]
    attacks = [(case, o) for case, o in talks if case.is_attack]
    benign = [o for case, o in talks if not case.is_attack]
    seen = [(o.flagged_turn, o.turns) for _, o in attacks if o.flagged_turn is not None]
    alarms = sum(o.is_flagged for o in benign)
    counts = [0] * PARTS
    for turn, turns in seen:
        counts[min(PARTS - 1, (turn * PARTS - 1) // turns)] += 1
    return Dialogues(
        attacks=len(attacks),
        benign=len(benign),
        detection_rate=share_of(len(seen), len(attacks), pool.hits(len(seen), len(attacks))),
        false_alarms_per_1000=share_of(
            alarms, len(benign), pool.hits(alarms, len(benign)), scale=1000.0
        ),
        detection_turn=float(median(turn for turn, _ in seen)) if seen else None,
        share_spoken=fmean(turn / turns for turn, turns in seen) if seen else None,
        lead_turns=fmean(turns - turn for turn, turns in seen) if seen else None,
        spoken_counts=tuple(counts),
        timing=_timing(attacks),
    )


def _timing(attacks: Sequence[Judged]) -> Timing:
    """Count early, on-turn, late and missed blocks."""
    known = [(case.attack_turn, o.flagged_turn) for case, o in attacks if case.attack_turn]
    delays = [flagged - turn for turn, flagged in known if flagged is not None]
    return Timing(
        known=len(known),
        early=sum(delay < 0 for delay in delays),
        on_turn=delays.count(0),
        late=sum(delay > 0 for delay in delays),
        missed=len(known) - len(delays),
    )


def shuffled_cases(
    cases: Sequence[Case], *, seed: int, most: int = MOST_SHUFFLED
) -> tuple[Case, ...]:
    """Return a drawn sample of attack conversations with their turns in another order."""
    rng = random.Random(seed)
    long = [c for c in cases if c.is_attack and len(steps_of(c.messages)) >= LEAST_TURNS]
    chosen = rng.sample(long, min(most, len(long)))
    return tuple(_shuffled(case, rng) for case in sorted(chosen, key=lambda case: case.index))


def order_test(spoken: Sequence[Outcome], shuffled: Sequence[Outcome]) -> OrderTest:
    """Compare the outcomes of shuffled cases with those of the same cases as they were."""
    by_index = {outcome.index: outcome for outcome in spoken}
    pairs = [(by_index[o.index], o) for o in shuffled if not o.error]
    shifts = [as_was.score - other.score for as_was, other in pairs if not as_was.error]
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
    # A shuffle may leave a short talk as it was.
    while order == sorted(order):
        rng.shuffle(order)
    system = [message for message in case.messages if message.role is Role.SYSTEM]
    said = [message for place in order for message in _messages(steps[place])]
    return replace(case, messages=(*system, *said), attack_turn=None)


def _messages(step: Step) -> Iterator[Message]:
    # Without its time: in another order the clock would run backwards.
    yield Message(role=Role.USER, content=step.turn.text)
    for content in step.turn.contents:
        yield Message(role=Role.TOOL, content=content.text)
    if step.reply is not None:
        yield Message(role=Role.ASSISTANT, content=step.reply)
