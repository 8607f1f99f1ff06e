"""Why a conversation got its verdict, and what it would have been without some of its turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from promptguard.risk.explain import Attribution, attribute, heaviest_turns
from promptguard.state import Action, Mode, ModeEntry, SessionState
from promptguard.turns.judge import TurnJudge
from promptguard.turns.verdict import TurnVerdict
from promptguard.turns.walk import Step, walk

MAX_STEPS = 500
_Passes = Callable[[frozenset[int]], bool]
PASSING = frozenset({Action.ALLOW, Action.ANNOTATE, Action.STEER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """What the last message would have got had it been the only one."""

    risk: float
    mode: Mode
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The verdict on the last turn, taken apart.

    `without` is the smallest set found of earlier turns without which the last turn would have
    passed; None where it passed anyway or is refused for itself. `is_partial` says that only
    the last turns of a very long session were replayed.
    """

    verdict: TurnVerdict
    attribution: Attribution
    entered: tuple[ModeEntry, ...]
    alone: Alone
    without: tuple[int, ...] | None
    verdicts: tuple[TurnVerdict, ...]
    is_partial: bool


def explain(judge: TurnJudge, steps: Sequence[Step]) -> Explanation:
    """Replay `steps` and explain the verdict on the last of them."""
    kept = steps[-MAX_STEPS:]
    walked = list(walk(judge, kept))
    verdict, state = walked[-1]
    before = walked[-2][1] if len(walked) > 1 else SessionState(session_id=state.session_id)
    last, now = kept[-1], state.recent[-1].timestamp
    single, _ = judge.judge(SessionState(session_id=state.session_id), last.turn, now=now)
    attribution = attribute(state.ledger, judge.prior)
    return Explanation(
        verdict=verdict,
        attribution=attribution,
        entered=state.entered,
        alone=Alone(risk=single.risk, mode=single.mode, action=single.action),
        without=_without(judge, verdict, single, before, last, attribution, now),
        verdicts=tuple(each for each, _ in walked),
        is_partial=len(kept) < len(steps),
    )


def forget(state: SessionState, turns: frozenset[int]) -> SessionState:
    """Return the state as if `turns` had left no evidence and no trace."""
    pairs = zip(state.ledger.entries, state.ledger.retained, strict=True)
    kept = [(entry, share) for entry, share in pairs if entry.turn not in turns]
    ledger = replace(
        state.ledger,
        entries=tuple(entry for entry, _ in kept),
        retained=tuple(share for _, share in kept),
    )
    return replace(
        state,
        ledger=ledger,
        mode=Mode.SAFE,
        recent=tuple(record for record in state.recent if record.turn not in turns),
        escalations=tuple(event for event in state.escalations if event.turn not in turns),
    )


def _without(
    judge: TurnJudge,
    verdict: TurnVerdict,
    single: TurnVerdict,
    before: SessionState,
    last: Step,
    attribution: Attribution,
    now: float,
) -> tuple[int, ...] | None:
    if verdict.action in PASSING or single.action not in PASSING:
        return None
    remembered = {record.turn for record in before.recent}
    heavy = heaviest_turns(attribution, before=verdict.turn)
    order = [turn for turn in heavy if turn in remembered]
    order += [turn for turn in sorted(remembered, reverse=True) if turn not in order]

    def passes(removed: frozenset[int]) -> bool:
        return judge.judge(forget(before, removed), last.turn, now=now)[0].action in PASSING

    for turn in order:
        if passes(frozenset({turn})):
            return (turn,)
    removed: frozenset[int] = frozenset()
    for turn in order:
        removed |= {turn}
        if len(removed) > 1 and passes(removed):
            return _thinned(removed, passes)
    return None


def _thinned(removed: frozenset[int], passes: _Passes) -> tuple[int, ...]:
    for turn in sorted(removed):
        fewer = removed - {turn}
        if fewer and passes(fewer):
            removed = fewer
    return tuple(sorted(removed))
