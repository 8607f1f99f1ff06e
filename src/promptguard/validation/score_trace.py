"""The signals' scores of each turn: computed once, so that weights can be tried on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from promptguard.config import ControllerConfig
from promptguard.errors import ModelError, PromptGuardError
from promptguard.risk.weights import Priors, Weights
from promptguard.turns.input import steps_of
from promptguard.turns.judge import TurnJudge
from promptguard.turns.walk import walk
from promptguard.validation.contenders import Openers
from promptguard.validation.dataset import Case
from promptguard.verdict import SignalScore, Verdict
from promptguard.workers import map_ordered


class Kind(StrEnum):
    """The kinds of traffic that have a prior of their own, named as in the weights file."""

    FIRST = "first"
    LATER = "later"
    DOCUMENT = "document"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTurn:
    """One turn: what each signal scored, and the nats of its riskiest content, if it had any."""

    scores: tuple[SignalScore, ...]
    document: float | None = None
    at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTrace:
    """The scores of one case; `hard_turn` is the first turn that the rules veto, from 1.

    `group` keeps cases that belong together on one side of a split.
    """

    index: int
    is_attack: bool
    source: str
    group: str
    turns: tuple[ScoreTurn, ...]
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

    The thorough reader is asked where the present weights ask it.
    """
    # What the present weights block would enter the scores of later turns, as in `probing`.
    off = {"block_from": None, "review_from": None, "content_from": None}
    scoring = config.model_copy(update={"policy": config.policy.model_copy(update=off)})
    opener = partial(_open, openers or Openers(), scoring)
    traces = []
    for number, trace in enumerate(map_ordered(opener, cases, jobs=jobs, lost=_lost), start=1):
        if trace is not None:
            traces.append(trace)
        on_case(number)
    return tuple(traces)


def turn_nats(turn: ScoreTurn, weights: Weights, number: int) -> float:
    """Return what the signals of turn `number`, counted from 1, weigh together."""
    known = ((score.score, weights.signals.get(score.name)) for score in turn.scores)
    return math.fsum(
        weight.nats(score, turn=number)
        for score, weight in known
        if weight is not None and weight.scale_at(number)
    )


def turn_odds(trace: ScoreTrace, weights: Weights, priors: Priors) -> tuple[float, ...]:
    """Return the log-odds of each turn's risk: prior and nats, or its riskiest content's."""
    found = []
    for number, turn in enumerate(trace.turns, start=1):
        own = (priors.first if number == 1 else priors.later) + turn_nats(turn, weights, number)
        beside = -math.inf if turn.document is None else priors.document + turn.document
        found.append(max(own, beside))
    return tuple(found)


def is_blocked(trace: ScoreTrace, weights: Weights, priors: Priors, bar: float) -> bool:
    """Say whether a turn reaches the log-odds `bar`, or the rules veto one."""
    return trace.hard_turn is not None or max(turn_odds(trace, weights, priors)) >= bar


def nats_by_kind(trace: ScoreTrace, weights: Weights) -> Mapping[Kind, float]:
    """Return the most nats of each kind of traffic in the case; infinity where the rules veto."""
    found: dict[Kind, float] = {}
    for number, turn in enumerate(trace.turns, start=1):
        kind = Kind.FIRST if number == 1 else Kind.LATER
        nats = math.inf if trace.hard_turn == number else turn_nats(turn, weights, number)
        found[kind] = max(found.get(kind, -math.inf), nats)
        if turn.document is not None:
            found[Kind.DOCUMENT] = max(found.get(Kind.DOCUMENT, -math.inf), turn.document)
    return found


def _document_nats(verdict: Verdict, prior: float) -> float | None:
    if not verdict.content:
        return None
    risk = min(max(1e-12, *(f.risk for f in verdict.content)), 1 - 1e-12)
    # The risk was computed with the present prior; other priors are to be tried on what is left.
    return math.log(risk / (1 - risk)) - prior


def _open(
    openers: Openers, config: ControllerConfig
) -> Callable[[Sequence[Case]], Sequence[ScoreTrace | None]]:
    judge = openers.judge(config)
    return lambda cases: [_traced(judge, case) for case in cases]


def _traced(judge: TurnJudge, case: Case) -> ScoreTrace | None:
    try:
        walked = list(walk(judge, steps_of(case.messages), session_id=str(case.id)))
    except ModelError:
        raise
    except PromptGuardError:
        return None
    if not walked:
        return None
    return ScoreTrace(
        index=case.index,
        is_attack=case.is_attack,
        source=case.source,
        group=case.pair or str(case.id),
        turns=tuple(
            ScoreTurn(
                scores=tuple(SignalScore(name=s.name, score=s.score) for s in verdict.scores),
                document=_document_nats(verdict, judge.priors.document),
                at_s=state.updated,
            )
            for verdict, state in walked
        ),
        hard_turn=next((verdict.turn for verdict, _ in walked if verdict.is_hard), None),
    )


def _lost(_: Case) -> ScoreTrace | None:
    return None
