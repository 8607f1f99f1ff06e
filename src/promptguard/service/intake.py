"""From the messages of a request to a judged turn: find the session, compare, import, judge.

Only messages that were not stored before are judged. A history that is new here is judged turn
by turn, so that a client cannot bring in messages that were never judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from promptguard.config import ServiceConfig
from promptguard.controller import Controller
from promptguard.conversation import ComparableMessage, Role
from promptguard.errors import StoreError, VersionConflict
from promptguard.protocols import ClientHints, SessionKey
from promptguard.service.errors import ApiError
from promptguard.service.history import (
    Comparison,
    HistoryKind,
    compare,
    content_of,
    split_new,
    steps_in,
    whole_turns,
)
from promptguard.service.lanes import JudgingSlots, judging_slots
from promptguard.service.sessions import (
    DIGEST_BYTES,
    Owner,
    SeenView,
    SessionFinder,
    SessionIndex,
    SessionQueues,
    chain_of,
    view_of,
)
from promptguard.service.settings import LiveSettings
from promptguard.service.telemetry import Telemetry
from promptguard.service.verdicts import remembered_verdict, stored_verdict
from promptguard.state import SessionState, TranscriptEntry
from promptguard.stored_sessions import MAX_CONFLICTS
from promptguard.turns.contents import HarmlessContents
from promptguard.turns.input import TurnInput
from promptguard.turns.result import TurnResult, withheld_digests
from promptguard.turns.walk import SECONDS_BETWEEN_TURNS
from promptguard.verdict import Action, Verdict

# How much of the transcript's end a request is compared with first.
_TAIL = 256
_TAIL_PER_MESSAGE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """The messages of a request and their owner.

    `contents` are texts beside the messages that a model may read, `system` the application's
    prompt. `session_id` is the client's own name for the session, if any. `learns_replies`: the
    model answers elsewhere, so its answers are seen only when the client resends them.
    `operation`, `model` and `provider` name the trace. `continues` is the session itself where
    the request goes on from an answer that is known here. `view` is the conversation as digests.
    """

    owner: Owner
    messages: tuple[ComparableMessage, ...]
    contents: tuple[ComparableMessage, ...] = ()
    system: str = ""
    session_id: str | None = None
    client: ClientHints = field(default_factory=ClientHints)
    learns_replies: bool = False
    operation: str = "guard"
    model: str = ""
    provider: str = ""
    continues: SessionKey | None = None
    view: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "view", view_of(self.messages))


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A judged turn. `view` is the conversation as the client showed it.

    `is_chained`: the session was found by its messages, not by an id. `stripped` are the digests
    of contents, of this turn and of earlier ones, that the model must not see. `system` is what
    the answer must not repeat, save for what the user said, `spoken`.
    """

    result: TurnResult
    history: HistoryKind
    key: SessionKey
    owner: Owner
    view: bytes
    is_chained: bool
    stripped: frozenset[str] = frozenset()
    system: str = ""
    spoken: str = ""

    @property
    def state(self) -> SessionState:
        """The session after the turn."""
        return self.result.state


class Intake:
    """Admits turns. One instance serves all routes, so that they share one session index."""

    def __init__(
        self,
        controller: Controller,
        telemetry: Telemetry,
        live: LiveSettings,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._telemetry = telemetry
        self._live = live
        self._clock = clock
        self._index = SessionIndex()
        self._queues = SessionQueues()
        self._slots = JudgingSlots(judging_slots(live.current.service))
        self._finder = SessionFinder(controller.store, self._index)
        self._harmless = HarmlessContents()

    async def admit(self, incoming: Incoming) -> Admission:
        """Judge, record, trace and log what is new in `incoming`.

        A request without any text (images or system messages alone) is a turn with an empty
        text, so that a session that is to be blocked stays so, and the answer is judged.
        """
        about = {"model": incoming.model, "provider": incoming.provider}
        with self._telemetry.turn_span(incoming.operation, **about) as span:
            admission = await self._in_session(incoming)
            span.set_attribute("gen_ai.conversation.id", admission.key.session_id)
        key = incoming.owner.principal.name
        self._telemetry.admitted(admission.result, history=admission.history.value, key=key)
        return admission

    async def answered(self, admission: Admission, text: str) -> TurnResult:
        """Record the assistant's answer to an admitted turn."""
        reply = ComparableMessage.of(Role.ASSISTANT, text)
        result = await self._controller.record_reply(admission.result, reply.content)
        self.remember(admission, result.state, reply)
        return result

    def remember(
        self, admission: Admission, state: SessionState, reply: ComparableMessage | None = None
    ) -> None:
        """Index the conversation as it is once the client has received `reply`, if any."""
        view = admission.view
        if reply is not None:
            view += view_of((reply,))
        seen = SeenView(view=view, message_count=state.message_count, stripped=admission.stripped)
        self._index.remember(admission.owner, admission.key, seen, is_chained=admission.is_chained)

    def mark_unanswered(self, admission: Admission) -> None:
        """Index an admitted turn that got no answer and may be sent again."""
        if admission.is_chained:
            chain = chain_of(admission.owner, admission.view)
            self._index.mark_unanswered(chain, admission.key.session_id)
        # A retry is compared with the store, which knows that its turn has no answer.
        self._index.forget(admission.key)

    def forget(self, key: SessionKey) -> None:
        """Drop what is known of a deleted session."""
        self._index.forget(key)

    async def _in_session(self, incoming: Incoming) -> Admission:
        """Find the session and judge the turn in it."""
        found = self._finder.find(
            incoming.owner,
            incoming.messages,
            incoming.view,
            session_id=incoming.session_id,
            known=incoming.continues,
        )
        # In this order: whoever waits for a session must not hold a slot that others could use.
        async with found as key, self._queues.turn_of(key), self._slots.slot():
            # A retry can overtake the attempt it repeats, on this guard or on another one. What
            # was written meanwhile may be this very turn, hence the new comparison.
            for _ in range(MAX_CONFLICTS):
                with suppress(VersionConflict):
                    return await self._admitted(incoming, key)
        raise StoreError("The session is written too often at once; try the turn again.")

    async def _admitted(self, incoming: Incoming, key: SessionKey) -> Admission:
        config, controller = self._live.current.service, self._controller
        state = await controller.store.load(key)
        comparison = await self._compared(key, state, incoming)
        if state is None:
            state = SessionState(session_id=key.session_id, tenant=key.tenant)
        elif comparison.kind is HistoryKind.RETRIED:
            repeated = await self._repeated(key, state, incoming.contents)
            if repeated is not None:
                return _admission(incoming, key, repeated, comparison, config)
            comparison = replace(comparison, kind=HistoryKind.REGENERATED)
        if state.profile.turns >= config.max_turns:
            message = "This session has too many turns; begin a new one."
            raise ApiError(422, message, code="session_full")
        # A session that is new here has learned nothing.
        if comparison.learned is not None:
            before = self._result_of(state, remembered_verdict(state))
            state = (await controller.record_reply(before, comparison.learned)).state
        result, stripped = await self._judged(key, incoming, comparison, state)
        known = replace(comparison, stripped=comparison.stripped | stripped)
        return _admission(incoming, key, result, known, config)

    async def _compared(
        self, key: SessionKey, state: SessionState | None, incoming: Incoming
    ) -> Comparison:
        if state is None:
            history, new = split_new(incoming.messages)
            return Comparison(kind=HistoryKind.FIRST, new=new, unseen=history)
        seen = self._index.view(key)
        # Another guard may have written since; then this view is no proof any more.
        if seen is not None and seen.message_count != state.message_count:
            seen = None
        # The usual case, decided without reading the transcript.
        if seen is not None and (added := _added(incoming, seen.view)):
            return Comparison(kind=HistoryKind.INTACT, new=added, stripped=seen.stripped)
        stored, comparison = await self._with_store(key, state, incoming)
        if seen is None:
            return comparison
        if not any(entry.content_hash for entry in stored):
            return _by_view(incoming, replace(comparison, stripped=seen.stripped), seen.view)
        return _thinned(incoming, comparison, seen.view)

    async def _with_store(
        self, key: SessionKey, state: SessionState, incoming: Incoming
    ) -> tuple[Sequence[TranscriptEntry], Comparison]:
        """Compare with as much of the transcript as it takes: its end settles most requests."""
        store = self._controller.store
        count = _TAIL + _TAIL_PER_MESSAGE * len(incoming.messages)
        if state.message_count > count:
            stored = whole_turns(await store.tail(key, count))
            comparison = await self._against(stored, incoming)
            # What seems new or missing may stand before this end; then the whole is read.
            if stored and not (comparison.kind.is_rewriting or comparison.unseen):
                return stored, comparison
        stored = await store.transcript(key)
        return stored, await self._against(stored, incoming)

    async def _against(self, stored: Sequence[TranscriptEntry], incoming: Incoming) -> Comparison:
        # Where a block is an error, or the client refuses in its own words, it resends no refusal.
        style = self._live.current.service.block_style
        return await asyncio.to_thread(
            compare,
            incoming.messages,
            stored,
            hides_refusals=style == "error" or incoming.learns_replies,
            learns_replies=incoming.learns_replies,
        )

    async def _judged(
        self, key: SessionKey, incoming: Incoming, comparison: Comparison, state: SessionState
    ) -> tuple[TurnResult, frozenset[str]]:
        """Judge what is new, turn by turn; returns the last result and what is to be stripped."""
        controller = self._controller
        *earlier, last = steps_in(comparison, incoming.system, controller.config.max_chars)
        judge = partial(controller.judge_turn, key.session_id, tenant=key.tenant)
        now = self._clock()
        is_first = comparison.kind is HistoryKind.FIRST
        stripped: frozenset[str] = frozenset()
        for at, step in enumerate(earlier):
            # An imported past gets times before now: as one burst it would look like an attack.
            back_s = SECONDS_BETWEEN_TURNS * (len(earlier) - at) if is_first else 0.0
            result = await judge(step.turn, now=now - back_s)
            stripped |= _stripped(result, step.turn)
            if step.reply is not None and not result.is_blocked:
                await controller.record_reply(result, step.reply, now=now - back_s)
        judging = controller.judge
        beside = self._beside(key, incoming.contents)
        turn = replace(
            last.turn,
            contents=(*last.turn.contents, *(content_of(item) for item in beside)),
            client=incoming.client,
            history_rewritten=comparison.kind.is_rewriting,
        )
        with self._telemetry.judging():
            # With `state` a concurrent write raises VersionConflict and is compared anew; after
            # imported turns the state has moved on by our own writes.
            result = await judge(turn, known=None if earlier else state, now=now)
        self._telemetry.turn(result)
        if beside:
            self._harmless.learn(key.tenant, beside, result.verdict, judging)
        return result, stripped | _stripped(result, turn)

    async def _repeated(
        self, key: SessionKey, state: SessionState, contents: Sequence[ComparableMessage]
    ) -> TurnResult | None:
        """Return the result of the last turn, which is asked once more and not judged again.

        None where that says too little: contents came with it, or the session was locked since.
        """
        entries = await self._controller.store.tail(key, _TAIL)
        last = [entry for entry in entries if entry.turn == state.turn_count]
        known = {entry.content_hash for entry in last}
        if any(item.digest not in known for item in self._beside(key, contents)):
            return None
        stored = (stored_verdict(entry) for entry in last)
        verdict = next((each for each in stored if each is not None), remembered_verdict(state))
        if state.lock is not None and verdict.action is not Action.BLOCK:
            return None
        return self._result_of(state, verdict)

    def _beside(
        self, key: SessionKey, contents: Sequence[ComparableMessage]
    ) -> Sequence[ComparableMessage]:
        """Return the contents that are still to be judged."""
        if not contents:
            return ()
        return self._harmless.others(key.tenant, contents, self._controller.judge)

    def _result_of(self, state: SessionState, verdict: Verdict) -> TurnResult:
        is_enforced = self._controller.config.mode == "enforce"
        return TurnResult(state=state, verdict=verdict, is_enforced=is_enforced)


def _admission(
    incoming: Incoming,
    key: SessionKey,
    result: TurnResult,
    comparison: Comparison,
    config: ServiceConfig,
) -> Admission:
    return Admission(
        result=result,
        history=comparison.kind,
        key=key,
        owner=incoming.owner,
        view=incoming.view,
        is_chained=incoming.session_id is None and incoming.continues is None,
        # In detect mode nothing is changed on its way to the model.
        stripped=comparison.stripped if result.is_enforced else frozenset(),
        system="" if config.prompt_leaks == "allow" else incoming.system,
        spoken="\n".join(i.content for i in incoming.messages if i.role is Role.USER),
    )


def _stripped(result: TurnResult, turn: TurnInput) -> frozenset[str]:
    return withheld_digests([content.text for content in turn.contents], result.verdict)


def _added(incoming: Incoming, known: bytes) -> tuple[ComparableMessage, ...]:
    """Return the messages after the known view.

    Empty where the request is anything but that view and new user or tool messages.
    """
    added = incoming.messages[len(known) // DIGEST_BYTES :]
    if any(item.role is Role.ASSISTANT for item in added) or not incoming.view.startswith(known):
        return ()
    return added


def _by_view(incoming: Incoming, comparison: Comparison, known: bytes) -> Comparison:
    """Compare with the known view where the store keeps no hashes (`store_text: off`)."""
    starts = range(0, len(known), DIGEST_BYTES)
    digests = {known[at : at + DIGEST_BYTES] for at in starts}
    history, _ = split_new(incoming.messages)
    unseen = tuple(
        item
        for item in history
        if view_of((item,)) not in digests
        and not (incoming.learns_replies and item.role is Role.ASSISTANT)
    )
    if unseen:
        return replace(comparison, kind=HistoryKind.REWRITTEN, unseen=unseen)
    return _thinned(incoming, replace(comparison, unseen=()), known)


def _thinned(incoming: Incoming, comparison: Comparison, known: bytes) -> Comparison:
    """Return the comparison; `dropped` where messages in the middle of its history are missing."""
    is_whole = comparison.kind in (HistoryKind.INTACT, HistoryKind.NOT_RESENT)
    # Where the model answers elsewhere, the known view lacks what it said.
    if incoming.learns_replies or not is_whole:
        return comparison
    resent = len(incoming.messages) - len(comparison.new)
    if known.endswith(incoming.view[: resent * DIGEST_BYTES]):
        return comparison
    return replace(comparison, kind=HistoryKind.DROPPED)
