"""What can be done with sessions that are stored: lock, release, label, explain, judge again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from promptguard.computations import offloaded
from promptguard.config import ControllerConfig
from promptguard.errors import SessionNotFound, StoreError, VersionConflict
from promptguard.protocols import SessionKey, SessionLabel, SessionStore
from promptguard.state import Ledger, Lock, SessionState, TranscriptEntry
from promptguard.turns.explain import Explanation, explain
from promptguard.turns.input import Step
from promptguard.turns.judge import TurnJudge
from promptguard.turns.walk import steps_from, walk
from promptguard.verdict import Mode, Verdict

# A session that is written as often meanwhile is given up.
MAX_CONFLICTS = 64
FALSE_ALARM = "false_alarm"


class StoredSessions:
    """The sessions of a store, whoever wrote them; `judge` judges them again."""

    def __init__(self, store: SessionStore, judge: TurnJudge) -> None:
        self.store = store
        self.judge = judge

    async def release(
        self, session_id: str, *, tenant: str = "default", forgive: bool = False
    ) -> SessionState:
        """Unlock a session; with `forgive`, what it has shown no longer counts.

        Raises SessionNotFound.
        """

        def released(state: SessionState) -> SessionState:
            return replace(_forgiven(state) if forgive else state, lock=None)

        return await self._change(SessionKey(session_id=session_id, tenant=tenant), released)

    async def lock(self, session_id: str, *, reason: str, tenant: str = "default") -> SessionState:
        """Block every further turn of a session until it is released. Raises SessionNotFound."""

        def locked(state: SessionState) -> SessionState:
            return replace(state, lock=Lock(turn=state.turn_count, reason=reason))

        return await self._change(SessionKey(session_id=session_id, tenant=tenant), locked)

    async def _change(
        self,
        key: SessionKey,
        change: Callable[[SessionState], SessionState],
        *,
        known: SessionState | None = None,
        said: Callable[[SessionState], TranscriptEntry] | None = None,
    ) -> SessionState:
        """Save what `change` makes of a stored session, however often it is written meanwhile.

        `said` makes the message that is recorded with it. Begins with `known`: mostly nobody else
        has written since, and a read is saved.
        """
        for _ in range(MAX_CONFLICTS):
            state, known = known or await self.store.load(key), None
            if state is None:
                raise SessionNotFound("There is no such session.")
            changed = replace(change(state), version=state.version + 1)
            entries = (said(state),) if said else ()
            try:
                await self.store.save(changed, expected_version=state.version, entries=entries)
            except VersionConflict:
                continue
            return changed
        raise StoreError("The session is written too often at once; try again.")

    async def put_label(
        self, session_id: str, label: SessionLabel, *, tenant: str = "default"
    ) -> None:
        """Record a person's verdict; a false alarm also forgives and unlocks the session."""
        key = SessionKey(session_id=session_id, tenant=tenant)
        # The label first: whatever fails below, what the person said is kept.
        await self.store.put_label(key, label)
        if label.verdict == FALSE_ALARM:
            await self.release(session_id, tenant=tenant, forgive=True)

    async def explain(self, session_id: str, *, tenant: str = "default") -> Explanation:
        """Replay a stored session and explain the verdict on its last turn."""
        steps = await self._steps(SessionKey(session_id=session_id, tenant=tenant))
        return await asyncio.to_thread(offloaded, explain, self.judge, steps)

    async def replay(
        self, session_id: str, config: ControllerConfig, *, tenant: str = "default"
    ) -> tuple[tuple[Verdict, Verdict], ...]:
        """Judge a stored session under this and another configuration, turn by turn."""
        steps = await self._steps(SessionKey(session_id=session_id, tenant=tenant))
        return await asyncio.to_thread(offloaded, _replayed, self.judge, config, steps)

    async def _steps(self, key: SessionKey) -> tuple[Step, ...]:
        entries = await self.store.transcript(key)
        if not entries:
            raise SessionNotFound(
                "There is no such session; `promptguard sessions list` shows what is stored."
            )
        state = await self.store.load(key)
        system = state.system if state is not None else ""
        # In a thread: a long transcript takes long to read.
        return await asyncio.to_thread(steps_from, entries, system=system)


def _replayed(
    judge: TurnJudge, config: ControllerConfig, steps: tuple[Step, ...]
) -> tuple[tuple[Verdict, Verdict], ...]:
    ours = judge.config
    same_rules = (config.rules, config.temporal) == (ours.rules, ours.temporal)
    # To read and compile the rules takes most of a second.
    other = TurnJudge.open(
        config, encoder=judge.encoder, instinct=judge.instinct if same_rules else None
    )
    pairs = zip(walk(judge, steps), walk(other, steps), strict=True)
    return tuple((mine[0], theirs[0]) for mine, theirs in pairs)


def _forgiven(state: SessionState) -> SessionState:
    """Return a session whose evidence was found to be a false alarm: nothing of it is kept."""
    return replace(
        state,
        # The profile stays: what was done to earlier turns is a fact, whoever was right.
        ledger=Ledger(),
        mode=Mode.SAFE,
        accumulated_risk=0.0,
        recent=(),
        segments=(),
        residues=(),
        escalations=(),
        entered=(),
        intent=(),
    )
