"""What the signals said of each turn, kept so that weights can be tried without judging again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from promptguard.config import ControllerConfig
from promptguard.errors import ModelError, PromptGuardError
from promptguard.protocols import SignalScore
from promptguard.risk.ledger import add_turn, risk_of, total
from promptguard.risk.weights import Weights
from promptguard.state import Ledger
from promptguard.turns.judge import TurnJudge
from promptguard.turns.verdict import TurnVerdict
from promptguard.turns.walk import steps_of, walk
from promptguard.validation.dataset import Case
from promptguard.validation.openers import Openers
from promptguard.workers import work_off

LOWEST, HIGHEST = -30.0, 10.0
_FIRST_GUESS = -3.0
_STEPS = 8
_CLOSE = 1e-9

Turn = tuple[SignalScore, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tape:
    """One case as the signals heard it; `hard_turn` is the first that the rules veto, from 1.

    `group` keeps cases that belong together on one side of a split.
    """

    index: int
    is_attack: bool
    source: str
    group: str
    turns: tuple[Turn, ...]
    hard_turn: int | None = None


def record_tapes(
    cases: Sequence[Case],
    config: ControllerConfig,
    *,
    jobs: int = 1,
    openers: Openers | None = None,
    on_case: Callable[[int], None] = lambda _: None,
) -> tuple[Tape, ...]:
    """Let the signals hear every case, with blocking off; cases that fail are left out.

    Until its first block a conversation goes the same way whatever the weights, so that the
    tape says exactly where any weights would first block.
    """
    unblocked = config.policy.model_copy(update={"block_from": None, "review_from": None})
    hearing = config.model_copy(update={"policy": unblocked})
    tapes = []
    heard = work_off(partial(_open, openers or Openers(), hearing), cases, jobs=jobs, lost=_lost)
    for number, tape in enumerate(heard, start=1):
        if tape is not None:
            tapes.append(tape)
        on_case(number)
    return tuple(tapes)


def taped(
    verdicts: Sequence[TurnVerdict], *, index: int, is_attack: bool, source: str, group: str
) -> Tape:
    """Return the tape of a conversation from the verdicts on its turns."""
    return Tape(
        index=index,
        is_attack=is_attack,
        source=source,
        group=group,
        turns=tuple(tuple(_bare(score) for score in verdict.scores) for verdict in verdicts),
        hard_turn=next((verdict.turn for verdict in verdicts if verdict.is_hard), None),
    )


def totals(tape: Tape, weights: Weights, prior: float) -> tuple[float, ...]:
    """Return the ledger's sum after each turn, in nats."""
    ledger, found = Ledger(), []
    for number, scores in enumerate(tape.turns, start=1):
        ledger = add_turn(ledger, number, scores, weights, prior)
        found.append(total(ledger))
    return tuple(found)


def is_blocked(tape: Tape, weights: Weights, prior: float, start: float) -> bool:
    """Say whether the risk ever reaches `start`, or the rules veto a turn."""
    if tape.hard_turn is not None:
        return True
    return any(risk_of(nats, prior) >= start for nats in totals(tape, weights, prior))


def critical_prior(tape: Tape, weights: Weights, start: float) -> float:
    """Return the prior from which the case is blocked; -infinity where the rules veto it.

    The sum depends on the prior a little, through the leak, so the prior is found by stepping
    to where sum and prior together reach `start`, and by halving where that does not settle.
    """
    if tape.hard_turn is not None:
        return -math.inf
    bar = math.log(start / (1 - start))
    prior = _FIRST_GUESS
    for _ in range(_STEPS):
        found = bar - max(totals(tape, weights, prior))
        if abs(found - prior) < _CLOSE:
            return found
        prior = found
    low, high = LOWEST, HIGHEST
    while high - low > _CLOSE:
        middle = (low + high) / 2
        if is_blocked(tape, weights, middle, start):
            high = middle
        else:
            low = middle
    return high


def _open(
    openers: Openers, config: ControllerConfig
) -> Callable[[Sequence[Case]], Sequence[Tape | None]]:
    judge = openers.judge(config)
    return lambda cases: [_heard(judge, case) for case in cases]


def _heard(judge: TurnJudge, case: Case) -> Tape | None:
    try:
        verdicts = [v for v, _ in walk(judge, steps_of(case.messages), session_id=str(case.id))]
    except ModelError:
        raise
    except PromptGuardError:
        return None
    if not verdicts:
        return None
    return taped(
        verdicts,
        index=case.index,
        is_attack=case.is_attack,
        source=case.source,
        group=case.pair or str(case.id),
    )


def _bare(score: SignalScore) -> SignalScore:
    return SignalScore(name=score.name, score=score.score)


def _lost(_: Case) -> Tape | None:
    return None
