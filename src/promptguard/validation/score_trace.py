"""The signals' scores of each turn: computed once, so that weights can be tried on them."""

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
from promptguard.validation.contenders import Openers
from promptguard.validation.dataset import Case
from promptguard.workers import map_ordered

LOWEST, HIGHEST = -30.0, 10.0
_FIRST_GUESS = -3.0
_STEPS = 8
_CLOSE = 1e-9

Turn = tuple[SignalScore, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTrace:
    """The scores of one case; `hard_turn` is the first turn that the rules veto, from 1.

    `group` keeps cases that belong together on one side of a split.
    """

    index: int
    is_attack: bool
    source: str
    group: str
    turns: tuple[Turn, ...]
    hard_turn: int | None = None


def record_traces(
    cases: Sequence[Case],
    config: ControllerConfig,
    *,
    jobs: int = 1,
    openers: Openers | None = None,
    on_case: Callable[[int], None] = lambda _: None,
) -> tuple[ScoreTrace, ...]:
    """Compute the scores of every case, with blocking off; cases that fail are left out.

    Until its first block a conversation goes the same way whatever the weights, so that the
    trace says exactly where any weights would first block.
    """
    unblocked = config.policy.model_copy(update={"block_from": None, "review_from": None})
    scoring = config.model_copy(update={"policy": unblocked})
    opener = partial(_open, openers or Openers(), scoring)
    traces = []
    for number, trace in enumerate(map_ordered(opener, cases, jobs=jobs, lost=_lost), start=1):
        if trace is not None:
            traces.append(trace)
        on_case(number)
    return tuple(traces)


def trace_of(
    verdicts: Sequence[TurnVerdict], *, index: int, is_attack: bool, source: str, group: str
) -> ScoreTrace:
    """Return the trace of a conversation from the verdicts on its turns."""
    return ScoreTrace(
        index=index,
        is_attack=is_attack,
        source=source,
        group=group,
        turns=tuple(tuple(_bare(score) for score in verdict.scores) for verdict in verdicts),
        hard_turn=next((verdict.turn for verdict in verdicts if verdict.is_hard), None),
    )


def totals(trace: ScoreTrace, weights: Weights, prior: float) -> tuple[float, ...]:
    """Return the ledger's sum after each turn, in nats."""
    ledger, found = Ledger(), []
    for number, scores in enumerate(trace.turns, start=1):
        ledger = add_turn(ledger, number, scores, weights, prior)
        found.append(total(ledger))
    return tuple(found)


def is_blocked(trace: ScoreTrace, weights: Weights, prior: float, start: float) -> bool:
    """Say whether the risk ever reaches `start`, or the rules veto a turn."""
    if trace.hard_turn is not None:
        return True
    return any(risk_of(nats, prior) >= start for nats in totals(trace, weights, prior))


def critical_prior(trace: ScoreTrace, weights: Weights, start: float) -> float:
    """Return the prior from which the case is blocked; -infinity where the rules veto it.

    The sum depends on the prior a little, through the leak, so the prior is found by stepping
    to where sum and prior together reach `start`, and by halving where that does not settle.
    """
    if trace.hard_turn is not None:
        return -math.inf
    bar = math.log(start / (1 - start))
    prior = _FIRST_GUESS
    for _ in range(_STEPS):
        found = bar - max(totals(trace, weights, prior))
        if abs(found - prior) < _CLOSE:
            return found
        prior = found
    low, high = LOWEST, HIGHEST
    while high - low > _CLOSE:
        middle = (low + high) / 2
        if is_blocked(trace, weights, middle, start):
            high = middle
        else:
            low = middle
    return high


def _open(
    openers: Openers, config: ControllerConfig
) -> Callable[[Sequence[Case]], Sequence[ScoreTrace | None]]:
    judge = openers.judge(config)
    return lambda cases: [_traced(judge, case) for case in cases]


def _traced(judge: TurnJudge, case: Case) -> ScoreTrace | None:
    try:
        verdicts = [v for v, _ in walk(judge, steps_of(case.messages), session_id=str(case.id))]
    except ModelError:
        raise
    except PromptGuardError:
        return None
    if not verdicts:
        return None
    return trace_of(
        verdicts,
        index=case.index,
        is_attack=case.is_attack,
        source=case.source,
        group=case.pair or str(case.id),
    )


def _bare(score: SignalScore) -> SignalScore:
    return SignalScore(name=score.name, score=score.score)


def _lost(_: Case) -> ScoreTrace | None:
    return None
