"""From what a client says to a judged turn: find the session, compare, import, judge.

Only what was not stored before is judged; a whole history that is new here is judged turn by
turn, so that nothing can be brought in unseen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from promptguard.controller import MAX_CONFLICTS, Controller, TurnResult
from promptguard.conversation import Message, Role
from promptguard.errors import StoreError, VersionConflict
from promptguard.protocols import ClientHints, SessionKey
from promptguard.service.chat_request import Said
from promptguard.service.faults import Fault
from promptguard.service.history import Comparison, HistoryKind, compare, split_new
from promptguard.service.links import ConversationLinks, SeenView
from promptguard.service.session_finder import SessionFinder
from promptguard.service.session_key import DIGEST_BYTES, Owner, chain_of, view_of
from promptguard.service.telemetry import Telemetry
from promptguard.state import Action, SessionState
from promptguard.turns.judge import MAX_TOOL_CONTENTS
from promptguard.turns.verdict import TurnInput
from promptguard.turns.walk import SECONDS_BETWEEN_TURNS, Step, steps_of

MAX_IMPORTED = 64
_LUMP_CHARS = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """What a client says, and who it is; `session_id` is its own name for the session, if any."""

    owner: Owner
    said: tuple[Said, ...]
    session_id: str | None = None
    client: ClientHints = field(default_factory=ClientHints)
    learns_replies: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A judged turn. `view` is the conversation as the client showed it."""

    result: TurnResult
    history: HistoryKind
    key: SessionKey
    owner: Owner
    view: bytes
    is_chained: bool

    @property
    def state(self) -> SessionState:
        """The session after the turn."""
        return self.result.state

    @property
    def is_steered(self) -> bool:
        """Whether the model is to be warned."""
        return self.result.is_enforced and self.result.action in (Action.STEER, Action.REVIEW)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeLimits:
    """What can change while the service runs."""

    max_turns: int
    hides_refusals: bool


class Intake:
    """Admits turns. One for all the ways in, so that they share what they remember."""

    def __init__(
        self,
        controller: Controller,
        telemetry: Telemetry,
        limits: Callable[[], IntakeLimits],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._telemetry = telemetry
        self._limits = limits
        self._clock = clock
        self.links = ConversationLinks()
        self._finder = SessionFinder(controller.store, self.links)

    async def admit(self, incoming: Incoming) -> Admission:
        """Judge and record what is new in `incoming`."""
        if not incoming.said:
            raise Fault(
                400,
                "messages holds nothing to judge: give a user or tool message with text.",
                code="nothing_to_judge",
                param="messages",
            )
        async with self._finder.find(incoming.owner, incoming.said, incoming.session_id) as key:
            # A retry can overtake the attempt it repeats, on this guard or on another one. What
            # was written meanwhile may be this very turn, hence the new comparison.
            for _ in range(MAX_CONFLICTS):
                with suppress(VersionConflict):
                    return await self._admitted(incoming, key)
        raise StoreError("The session is written too often at once; try the turn again.")

    async def _admitted(self, incoming: Incoming, key: SessionKey) -> Admission:
        state = await self._controller.store.load(key)
        comparison = await self._compared(key, state, incoming)
        if comparison.kind is HistoryKind.RETRIED and state is not None:
            return self._admission(incoming, key, self._result_of(state), comparison)
        if state is not None and state.turn_count >= self._limits().max_turns:
            raise Fault(
                422, "This session has too many turns; begin a new one.", code="session_full"
            )
        if comparison.learned is not None and state is not None:
            learned = await self._controller.record_reply(
                self._result_of(state), comparison.learned
            )
            state = learned.state
        if state is None:
            state = SessionState(session_id=key.session_id, tenant=key.tenant)
        result = await self._judged(key, incoming, comparison, state)
        return self._admission(incoming, key, result, comparison)

    async def answered(self, admission: Admission, text: str) -> TurnResult:
        """Record the assistant's answer to an admitted turn."""
        reply = Said.of(Role.ASSISTANT, text)
        result = await self._controller.record_reply(admission.result, reply.text)
        self.stand(admission, result.state, text)
        return result

    def stand(self, admission: Admission, state: SessionState, text: str) -> None:
        """Remember where the conversation stands once the client has seen `text`."""
        reply = Said.of(Role.ASSISTANT, text)
        view = admission.view + (view_of((reply,)) if reply.text else b"")
        if admission.is_chained:
            self.links.stand(chain_of(admission.owner, view), admission.key.session_id)
        self.links.show(admission.key, SeenView(view=view, message_count=state.message_count))

    def failed(self, admission: Admission) -> None:
        """Remember that an admitted turn got no answer and may come again."""
        if admission.is_chained:
            chain = chain_of(admission.owner, admission.view)
            self.links.fail(chain, admission.key.session_id)
        self.links.forget(admission.key)

    async def _compared(
        self, key: SessionKey, state: SessionState | None, incoming: Incoming
    ) -> Comparison:
        if state is None:
            history, new = split_new(incoming.said)
            return Comparison(kind=HistoryKind.FIRST, new=new, unseen=history)
        seen = self.links.view(key)
        if seen is not None and seen.message_count != state.message_count:
            seen = None
        if seen is not None and (added := _added(incoming.said, seen.view)):
            return Comparison(kind=HistoryKind.INTACT, new=added)
        stored = await self._controller.store.transcript(key)
        comparison = await asyncio.to_thread(
            compare,
            incoming.said,
            stored,
            hides_refusals=self._limits().hides_refusals or incoming.learns_replies,
            learns_replies=incoming.learns_replies,
        )
        if incoming.learns_replies or seen is None:
            return comparison
        if _is_thinned(incoming.said, comparison, seen.view):
            return replace(comparison, kind=HistoryKind.DROPPED)
        return comparison

    async def _judged(
        self, key: SessionKey, incoming: Incoming, comparison: Comparison, state: SessionState
    ) -> TurnResult:
        *earlier, last = _steps(comparison)
        now = self._clock()
        is_first = comparison.kind is HistoryKind.FIRST
        for at, step in enumerate(earlier):
            back_s = SECONDS_BETWEEN_TURNS * (len(earlier) - at) if is_first else 0.0
            result = await self._judge(key, step.turn, now - back_s)
            if step.reply is not None and not result.is_blocked:
                await self._controller.record_reply(result, step.reply, now=now - back_s)
        turn = replace(
            last.turn,
            client=incoming.client,
            history_rewritten=comparison.kind.is_rewriting,
        )
        with self._telemetry.judging():
            result = await self._judge(key, turn, now, None if earlier else state)
        self._telemetry.turn(result)
        return result

    async def _judge(
        self, key: SessionKey, turn: TurnInput, now: float, known: SessionState | None = None
    ) -> TurnResult:
        return await self._controller.judge_turn(
            key.session_id,
            turn.text,
            tenant=key.tenant,
            tool_contents=turn.tool_contents,
            client=turn.client,
            history_rewritten=turn.history_rewritten,
            known=known,
            now=now,
        )

    def _result_of(self, state: SessionState) -> TurnResult:
        """Return the result of the last turn, as far as the state tells it."""
        last = state.recent[-1] if state.recent else None
        return TurnResult(
            state=state,
            verdict=None,
            action=Action.ALLOW if last is None else last.action,
            is_enforced=self._controller.config.mode == "enforce",
        )

    def _admission(
        self, incoming: Incoming, key: SessionKey, result: TurnResult, comparison: Comparison
    ) -> Admission:
        self._telemetry.history(comparison.kind.value)
        return Admission(
            result=result,
            history=comparison.kind,
            key=key,
            owner=incoming.owner,
            view=view_of(incoming.said),
            is_chained=incoming.session_id is None,
        )


def _added(said: Sequence[Said], view: bytes) -> tuple[Said, ...]:
    """Return what follows the known view, empty where that is not all there is to it."""
    known = len(view) // DIGEST_BYTES
    added = tuple(said[known:])
    if any(item.role is Role.ASSISTANT for item in added) or view_of(said[:known]) != view:
        return ()
    return added


def _is_thinned(said: Sequence[Said], comparison: Comparison, view: bytes) -> bool:
    """Say whether messages are missing amid a history in which nothing is new."""
    if comparison.kind not in (HistoryKind.INTACT, HistoryKind.NOT_RESENT):
        return False
    shown = view_of(said[: len(said) - len(comparison.new)])
    return not view.endswith(shown)


def _steps(comparison: Comparison) -> list[Step]:
    """Return the turns to judge in order; the last is the request's own."""
    users = [item.text for item in comparison.new if item.role is Role.USER]
    others = [item.text for item in comparison.new if item.role is not Role.USER]
    if comparison.kind is HistoryKind.FIRST:
        messages = [Message(role=item.role, content=item.text) for item in comparison.unseen]
        earlier = list(steps_of(messages))
    else:
        earlier = [_step_of(item) for item in comparison.unseen if item.role is not Role.ASSISTANT]
        others += [item.text for item in comparison.unseen if item.role is Role.ASSISTANT]
    earlier = [*_lumped(earlier[:-MAX_IMPORTED]), *earlier[-MAX_IMPORTED:]]
    *first, rest = _batches(others)
    earlier += [Step(turn=TurnInput(text="", tool_contents=batch)) for batch in first]
    return [*earlier, Step(turn=TurnInput(text="\n".join(users), tool_contents=rest))]


def _step_of(item: Said) -> Step:
    if item.role is Role.USER:
        return Step(turn=TurnInput(text=item.text))
    return Step(turn=TurnInput(text="", tool_contents=(item.text,)))


def _batches(contents: Sequence[str]) -> list[tuple[str, ...]]:
    """Return contents in groups that one turn reads whole; at least one group, if empty."""
    starts = range(0, max(1, len(contents)), MAX_TOOL_CONTENTS)
    return [tuple(contents[at : at + MAX_TOOL_CONTENTS]) for at in starts]


def _lumped(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield a long past in fewer, larger turns, so that one request cannot ask for thousands."""
    texts: list[str] = []
    for text in (text for step in steps for text in (step.turn.text, *step.turn.tool_contents)):
        if texts and sum(map(len, texts)) + len(text) > _LUMP_CHARS:
            yield Step(turn=TurnInput(text="\n".join(texts)))
            texts = []
        texts.append(text)
    if texts:
        yield Step(turn=TurnInput(text="\n".join(texts)))
