"""What other settings would do with all stored traffic: counted in the background, cancellable.

The stored scores of every turn are weighed under today's settings and under the others; where the
two actions differ, the turn would change. No reader runs and nothing is written.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from promptguard.computations import checkpoint, offloaded
from promptguard.config import ControllerConfig
from promptguard.errors import DataError, PromptGuardError
from promptguard.protocols import SessionStore
from promptguard.queries import JudgedQuery, JudgedTurn, LabelFilter, OverviewQuery
from promptguard.risk.ledger import Weighed
from promptguard.service.auth import Principal
from promptguard.service.calls import Calls
from promptguard.service.lanes import Lane
from promptguard.state import SessionState
from promptguard.turns.judge import TurnJudge
from promptguard.turns.reweigh import Reweigher
from promptguard.verdict import Action, Verdict

BATCH_TURNS = 2000
# How many turns are weighed from one checkpoint to the next, at each of which others may go first.
CHECK_TURNS = 200
EXAMPLES = 3
_LAST = 2**40  # seconds since the epoch that no turn reaches


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A turn whose action would be another."""

    session_id: str
    turn: int
    before: Action
    after: Action
    label: str
    risk_before: float
    risk_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """How many turns would go from one action to another, by label, with the clearest of them."""

    before: Action
    after: Action
    turns: int
    attacks: int
    false_alarms: int
    examples: tuple[Change, ...]

    @property
    def unlabelled(self) -> int:
        """Turns that nobody has looked at."""
        return self.turns - self.attacks - self.false_alarms


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledBlocks:
    """Of the labelled turns, how many are blocked under one of the settings."""

    attacks: int = 0
    attacks_blocked: int = 0
    false_alarms: int = 0
    false_alarms_blocked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfReport:
    """What would change. `unread` turns have no verdict that can be weighed.

    `recorded_otherwise` turns got another action when they were judged than today's settings give
    them: they were judged under other settings, or their session was released meanwhile.
    """

    turns: int
    sessions: int
    changed_turns: int
    changed_sessions: int
    changed_sessions_by_label: tuple[tuple[str, int], ...]
    moves: tuple[Move, ...]
    now: LabelledBlocks
    then: LabelledBlocks
    unread: int
    recorded_otherwise: int


@dataclass(slots=True, kw_only=True)
class _Counts:
    """What was counted so far; turns come session by session.

    `ours` and `theirs` are the session of the last turn, after it, under both settings.
    """

    turns: int = 0
    sessions: int = 0
    changed_sessions: int = 0
    unread: int = 0
    recorded_otherwise: int = 0
    moves: Counter[tuple[Action, Action, str]] = field(default_factory=Counter)
    examples: dict[tuple[Action, Action], list[Change]] = field(
        default_factory=lambda: defaultdict(list)
    )
    labelled: Counter[tuple[str, bool, bool]] = field(default_factory=Counter)
    by_label: Counter[str] = field(default_factory=Counter)
    session_id: str = ""
    labels: set[str] = field(default_factory=set)
    ours: SessionState = field(default_factory=lambda: SessionState(session_id=""))
    theirs: SessionState = field(default_factory=lambda: SessionState(session_id=""))

    def begin(self, session_id: str) -> None:
        """Count a turn, and its session where it is the first of it."""
        self.turns += 1
        if session_id != self.session_id:
            self.end()
            self.session_id = session_id
            self.sessions += 1

    def end(self) -> None:
        """Count the session that has ended, under the gravest label of its changed turns."""
        if self.labels:
            self.changed_sessions += 1
            self.by_label[min(self.labels, key=_gravity)] += 1
        self.labels = set()

    def weighed(self, turn: JudgedTurn, now: Weighed, then: Weighed) -> None:
        """Count a turn that comes to `now` under today's settings and to `then` under others."""
        self.recorded_otherwise += int(now.action is not turn.action)
        if turn.label:
            blocked = (now.action is Action.BLOCK, then.action is Action.BLOCK)
            self.labelled[(turn.label, *blocked)] += 1
        if now.action is then.action:
            return
        self.moves[now.action, then.action, turn.label] += 1
        self.labels.add(turn.label)
        kept = self.examples[now.action, then.action]
        kept.append(
            Change(
                session_id=turn.session_id,
                turn=turn.turn,
                before=now.action,
                after=then.action,
                label=turn.label,
                risk_before=now.turn_risk,
                risk_after=then.turn_risk,
            )
        )
        # At most a few are kept at a time, so that millions of changes take no memory.
        kept.sort(key=lambda each: -abs(each.risk_after - each.risk_before))
        del kept[EXAMPLES:]

    def report(self) -> WhatIfReport:
        """Sum up; there are no more turns."""
        self.end()
        by_label = sorted(self.by_label.items(), key=lambda item: _gravity(item[0]))
        return WhatIfReport(
            turns=self.turns,
            sessions=self.sessions,
            changed_turns=self.moves.total(),
            changed_sessions=self.changed_sessions,
            changed_sessions_by_label=tuple(by_label),
            moves=tuple(sorted(map(self._move, self.examples), key=lambda move: -move.turns)),
            now=self._blocks(0),
            then=self._blocks(1),
            unread=self.unread,
            recorded_otherwise=self.recorded_otherwise,
        )

    def _move(self, move: tuple[Action, Action]) -> Move:
        return Move(
            before=move[0],
            after=move[1],
            turns=sum(n for (*found, _), n in self.moves.items() if tuple(found) == move),
            attacks=self.moves[(*move, LabelFilter.ATTACK.value)],
            false_alarms=self.moves[(*move, LabelFilter.FALSE_ALARM.value)],
            examples=tuple(self.examples[move]),
        )

    def _blocks(self, place: int) -> LabelledBlocks:
        """Sum up labelled turns; `place` is 0 for today's settings and 1 for the others."""
        turns, blocked = Counter[str](), Counter[str]()
        for (label, *are_blocked), n in self.labelled.items():
            turns[label] += n
            blocked[label] += n * are_blocked[place]
        attack, alarm = LabelFilter.ATTACK.value, LabelFilter.FALSE_ALARM.value
        return LabelledBlocks(
            attacks=turns[attack],
            attacks_blocked=blocked[attack],
            false_alarms=turns[alarm],
            false_alarms_blocked=blocked[alarm],
        )


@dataclass(kw_only=True)
class WhatIf:
    """One count over all stored turns of a tenant; `name` and `choice` say under what settings.

    Each batch of turns is a heavy call of `principal`: turns that come in do not wait for it.
    """

    store: SessionStore
    calls: Calls
    ours: TurnJudge
    other: ControllerConfig
    principal: Principal
    choice: str
    name: str
    total: int = 0
    report: WhatIfReport | None = None
    fault: str = ""
    is_cancelled: bool = False
    counts: _Counts = field(default_factory=_Counts)

    @property
    def done(self) -> int:
        """How many turns were weighed so far."""
        return self.counts.turns

    @property
    def is_running(self) -> bool:
        """Whether the count goes on."""
        return self.report is None and not self.fault and not self.is_cancelled

    def cancel(self) -> None:
        """End the count at its next step."""
        self.is_cancelled = self.is_cancelled or self.is_running

    async def run(self) -> None:
        """Count until the end; a failure of the store or a full queue is told in `fault`."""
        try:
            await self._count()
        except PromptGuardError as error:
            self.fault = str(error)

    async def _count(self) -> None:
        tenant = self.principal.tenant
        query = OverviewQuery(tenant=tenant, since=0, until=_LAST, bucket_s=_LAST, is_demo=False)
        self.total = (await self.store.overview(query)).total.turns
        last = ("", 0)
        while not self.is_cancelled:
            # By the last turn seen and not by an offset, which would be read over again each time.
            asked = JudgedQuery(
                tenant=tenant, after_session=last[0], after_turn=last[1], limit=BATCH_TURNS
            )
            turns = await self.store.judged(asked)
            if not turns:
                self.report = self.counts.report()
                return
            # One call per batch: each takes its turn in the lane, and none runs into the deadline.
            async with self.calls.begin(self.principal, Lane.HEAVY):
                self.counts = await asyncio.to_thread(
                    offloaded, _weighed, self.ours, self.other, self.counts, turns
                )
            last = (turns[-1].session_id, turns[-1].turn)


def _weighed(
    judge: TurnJudge, other: ControllerConfig, before: _Counts, turns: Sequence[JudgedTurn]
) -> _Counts:
    """Return what is counted with `turns`."""
    # Readers and compiled rules are shared: no text is read, and rules are the same.
    opened = TurnJudge.open(other, encoder=judge.encoder, instinct=judge.instinct)
    shift = opened.priors.document - judge.priors.document
    ours = Reweigher(judge=judge, state=before.ours)
    theirs = Reweigher(judge=opened, document_shift=shift, state=before.theirs)
    # An abandoned step must not leave half of its turns counted.
    counts = deepcopy(before)
    for number, (turn, verdict) in enumerate(_readable(counts, turns)):
        if number % CHECK_TURNS == 0:
            checkpoint()
        now = ours.weigh(turn.session_id, verdict, now=turn.timestamp)
        then = theirs.weigh(turn.session_id, verdict, now=turn.timestamp)
        counts.weighed(turn, now, then)
    counts.ours, counts.theirs = ours.state, theirs.state
    return counts


def _readable(counts: _Counts, turns: Sequence[JudgedTurn]) -> Iterator[tuple[JudgedTurn, Verdict]]:
    for turn in turns:
        counts.begin(turn.session_id)
        try:
            verdict = Verdict.from_json(turn.verdict)
        except DataError:
            counts.unread += 1
            continue
        # No judge had judged it, so there are no scores to weigh.
        if verdict.fault and not verdict.evidence:
            counts.unread += 1
        else:
            yield turn, verdict


def _gravity(label: str) -> int:
    order = (LabelFilter.ATTACK.value, LabelFilter.FALSE_ALARM.value, "")
    return order.index(label) if label in order else len(order)
