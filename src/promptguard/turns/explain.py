"""Why a conversation got its verdict, and what it would have been without some of its turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from promptguard.risk.explain import Attribution, attribute
from promptguard.risk.ledger import accumulated_risk
from promptguard.risk.weights import MemoryWeights
from promptguard.state import ModeEntry, SessionState
from promptguard.turns.input import Step
from promptguard.turns.judge import TurnJudge
from promptguard.turns.walk import walk
from promptguard.verdict import Action, Mode, Verdict

MAX_STEPS = 500
_Passes = Callable[[frozenset[int]], bool]
STOPPING = frozenset({Action.BLOCK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """What the last message would have got had it been the only one."""

    turn_risk: float
    mode: Mode
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The verdict on the last turn, taken apart.

    `without` is the smallest set found of earlier turns without which the last turn would have
    passed; None where it passed anyway or is refused for itself. `is_partial` says that only
    the last turns of a very long session were replayed. `text` is the last message.
    """

    verdict: Verdict
    text: str
    attribution: Attribution
    entered: tuple[ModeEntry, ...]
    alone: Alone
    without: tuple[int, ...] | None
    verdicts: tuple[Verdict, ...]
    is_partial: bool


def explain(judge: TurnJudge, steps: Sequence[Step]) -> Explanation:
    """Replay `steps` and explain the verdict on the last of them."""
    kept = steps[-MAX_STEPS:]
    walked = list(walk(judge, kept, turns=len(steps) - len(kept)))
    verdict, state = walked[-1]
    before = walked[-2][1] if len(walked) > 1 else SessionState(session_id=state.session_id)
    last, now = kept[-1], state.recent[-1].timestamp
    single, _ = judge.judge(SessionState(session_id=state.session_id), last.turn, now=now)
    return Explanation(
        verdict=verdict,
        text=last.turn.text,
        attribution=attribute(state.ledger, judge.weights.memory),
        entered=state.entered,
        alone=Alone(turn_risk=single.turn_risk, mode=single.mode, action=single.action),
        without=_without(judge, verdict, single, before, last, now),
        verdicts=tuple(each for each, _ in walked),
        is_partial=len(kept) < len(steps),
    )


def forget(state: SessionState, turns: frozenset[int], memory: MemoryWeights) -> SessionState:
    """Return the state as if `turns` had left no evidence and no trace."""
    kept = tuple(entry for entry in state.ledger.entries if entry.turn not in turns)
    ledger = replace(state.ledger, entries=kept)
    return replace(
        state,
        ledger=ledger,
        accumulated_risk=accumulated_risk(ledger, memory),
        # Hysteresis would carry over the mode that the forgotten turns led to.
        mode=Mode.SAFE,
        lock=None,
        # Only remembered turns are asked about; those have not left a residue yet.
        recent=tuple(record for record in state.recent if record.turn not in turns),
        escalations=tuple(event for event in state.escalations if event.turn not in turns),
    )


def _without(
    judge: TurnJudge,
    verdict: Verdict,
    single: Verdict,
    before: SessionState,
    last: Step,
    now: float,
) -> tuple[int, ...] | None:
    if verdict.action not in STOPPING or single.action in STOPPING:
        return None
    heavy = sorted(before.recent, key=lambda record: (-record.turn_risk, -record.turn))
    # Every trial is a whole judgement, so that sets are not searched exhaustively.
    order = [record.turn for record in heavy]

    def passes(removed: frozenset[int]) -> bool:
        judged, _ = judge.judge(forget(before, removed, judge.weights.memory), last.turn, now=now)
        return judged.action not in STOPPING

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
