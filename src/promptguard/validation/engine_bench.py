"""Cases walked turn by turn through the engine."""

from __future__ import annotations

import time
from collections.abc import Sequence

from promptguard.config import ControllerConfig, PolicyConfig
from promptguard.errors import InputError
from promptguard.risk.explain import attribute
from promptguard.risk.policy import mode_named
from promptguard.state import Action, Mode, SessionState
from promptguard.turns.verdict import TurnVerdict
from promptguard.turns.walk import Step, steps_of, walk
from promptguard.validation.contenders import Contender
from promptguard.validation.dataset import Case
from promptguard.validation.openers import Openers
from promptguard.validation.outcome import Outcome

FLAGGING = frozenset({Action.BLOCK, Action.REVIEW})


class EngineBench:
    """One contender that is a configuration of the engine."""

    def __init__(self, contender: Contender, openers: Openers) -> None:
        assert isinstance(contender.settings, ControllerConfig)
        self._contender = contender
        self._judge = openers.judge(contender.settings)
        self._flag_from = flag_mode(contender.settings.policy)

    @property
    def names(self) -> tuple[str, ...]:
        """The contender's name."""
        return (self._contender.name,)

    def judge(self, case: Case) -> tuple[Outcome, ...]:
        """Return the contender's outcome."""
        steps = steps_of(case.messages)
        if not steps:
            raise InputError("There is no user or tool message to judge.")
        walked, turn_ms = self._walk(case, steps)
        verdicts = [verdict for verdict, _ in walked]
        flagged = next((place for place, v in enumerate(verdicts) if self._flags(v)), None)
        peak = max(range(len(verdicts)), key=lambda place: verdicts[place].risk)
        decided, state = walked[peak if flagged is None else flagged]
        by_signal = attribute(state.ledger, self._judge.prior).by_signal
        outcome = Outcome(
            index=case.index,
            contender=self._contender.name,
            score=verdicts[peak].risk,
            is_flagged=flagged is not None,
            flagged_turn=None if flagged is None else decided.turn,
            is_hard=flagged is not None and decided.is_hard and self._contender.counts_hard,
            risks=tuple(verdict.risk for verdict in verdicts),
            turn_ms=tuple(turn_ms),
            nats=tuple((name, round(nats, 4)) for name, nats in by_signal),
        )
        return (outcome,)

    def _walk(
        self, case: Case, steps: Sequence[Step]
    ) -> tuple[list[tuple[TurnVerdict, SessionState]], list[float]]:
        walked, turn_ms = [], []
        turns = walk(self._judge, steps, session_id=str(case.id))
        for _ in steps:
            start = time.perf_counter()
            walked.append(next(turns))
            turn_ms.append(round((time.perf_counter() - start) * 1e3, 3))
        return walked, turn_ms

    def _flags(self, verdict: TurnVerdict) -> bool:
        if self._contender.counts_hard:
            return verdict.action in FLAGGING
        return self._flag_from is not None and verdict.mode >= self._flag_from


def flag_mode(policy: PolicyConfig) -> Mode | None:
    """Return the lowest mode in which a turn is blocked or given to a person; None: never."""
    starts = [name for name in (policy.block_from, policy.review_from) if name is not None]
    return min((mode_named(name) for name in starts), default=None)
