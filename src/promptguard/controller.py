"""A guarded conversation: load, judge, save, answer, judge the answer, save.

Every turn is recorded before the model is called; a crash between any two steps loses no
recorded turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Self
from uuid import UUID

from promptguard.computations import offloaded
from promptguard.config import ControllerConfig, config_hash
from promptguard.conversation import Message, Role, content_hash
from promptguard.decisions import Permissions
from promptguard.errors import (
    EvaluationError,
    InputError,
    ModelError,
    PromptGuardError,
    StoreError,
    VersionConflict,
)
from promptguard.evaluation import PromptGuard
from promptguard.protocols import ClientHints, Provider, SessionKey, SessionStore
from promptguard.providers import open_provider
from promptguard.state import ReplyKind, ReplyRecord, SessionState, TranscriptEntry
from promptguard.stored_sessions import MAX_CONFLICTS, StoredSessions
from promptguard.stores import open_store
from promptguard.stores.rows import key_name
from promptguard.turns.exchanges import seen_by_model
from promptguard.turns.input import Content, TurnInput
from promptguard.turns.judge import TurnJudge, said_before, system_of
from promptguard.turns.replies import reply_record
from promptguard.turns.result import TurnResult
from promptguard.verdict import Action, Mode, Verdict

# A further judge costs time and money; it is asked where the engine itself is in doubt.
DOUBT = (Mode.CAUTIOUS, Mode.SUSPECT)


class Controller(StoredSessions):
    """Follows conversations. Dependencies not given are opened from the configuration."""

    def __init__(
        self,
        config: ControllerConfig | None = None,
        *,
        store: SessionStore | None = None,
        provider: Provider | None = None,
        judge: TurnJudge | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config or ControllerConfig()
        super().__init__(
            store if store is not None else open_store(self.config.store),
            judge or TurnJudge.open(self.config),
        )
        self._provider = provider
        self._second = PromptGuard(self.config.evaluation) if self.config.evaluation else None
        self._clock = clock
        self._config_hash = config_hash(self.config)
        # What operators let pass; whoever runs the controller puts the newest here.
        self.permissions = Permissions()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Release the store and the model's connections."""
        await self.store.close()
        for opened in (self._provider, self._second):
            if opened is not None:
                await opened.close()

    def reconfigure(self, judge: TurnJudge) -> None:
        """Judge the turns to come with `judge` and by its configuration.

        Store and guarded model stay as they are: they change only with a new controller.
        """
        config = judge.config
        second = self._second
        if config.evaluation != self.config.evaluation:
            # Made before anything is replaced: a faulty section leaves the old settings whole.
            second = PromptGuard(config.evaluation) if config.evaluation else None
        self.config, self.judge, self._second = config, judge, second
        self._config_hash = config_hash(config)

    async def process_turn(
        self,
        session_id: str | UUID,
        user_input: str,
        *,
        tenant: str = "default",
        contents: Sequence[Content | str] = (),
        client: ClientHints | None = None,
        now: float | None = None,
    ) -> TurnResult:
        """Judge one user turn and, where a model is configured and the turn passes, answer it."""
        turn = self._input(user_input, contents=contents, client=client)
        result = await self.judge_turn(session_id, turn, tenant=tenant, now=now)
        provider = self._model()
        if result.is_blocked or provider is None:
            return result
        completion = await provider.complete(await self._prompt(result, turn))
        return await self.record_reply(result, completion.text, now=now)

    async def stream_turn(
        self, session_id: str | UUID, user_input: str, *, tenant: str = "default"
    ) -> AsyncIterator[str | TurnResult]:
        """Like `process_turn`, yielding the answer in pieces and the TurnResult last."""
        turn = self._input(user_input)
        result = await self.judge_turn(session_id, turn, tenant=tenant)
        provider = self._model()
        if result.is_blocked or provider is None:
            if result.reply:
                yield result.reply
            yield result
            return
        pieces = []
        try:
            async for piece in provider.stream(await self._prompt(result, turn)):
                pieces.append(piece)
                yield piece
        except BaseException:
            # Where the model breaks off or the reader leaves, what was shown was said all the same.
            if pieces:
                await self.record_reply(result, "".join(pieces))
            raise
        yield await self.record_reply(result, "".join(pieces))

    async def judge_turn(
        self,
        session_id: str | UUID,
        turn: TurnInput,
        *,
        tenant: str = "default",
        known: SessionState | None = None,
        now: float | None = None,
    ) -> TurnResult:
        """Judge and record one turn; the model is not called.

        A session that changes meanwhile is judged anew. With `known`, the session as the caller
        has read it, it is a VersionConflict instead, so that the caller can see whether this turn
        was the change.
        """
        # Versions decide between writers of several processes; no lock is held while judging.
        key = SessionKey(session_id=str(session_id), tenant=tenant)
        for _ in range(MAX_CONFLICTS):
            state = (
                known
                or await self.store.load(key)
                or SessionState(session_id=key.session_id, tenant=key.tenant)
            )
            at = self._clock() if now is None else now
            started = time.perf_counter()
            result = await self.judge_state(state, turn, now=at)
            latency_ms = (time.perf_counter() - started) * 1000
            try:
                return await self._saved(state, result, turn, at, latency_ms)
            except VersionConflict:
                if known is not None:
                    raise
        raise StoreError("The session is written too often at once; try the turn again.")

    async def record_reply(
        self, result: TurnResult, text: str, *, now: float | None = None
    ) -> TurnResult:
        """Judge and record what the assistant answered to the turn of `result`."""
        at = self._clock() if now is None else now
        key = SessionKey(session_id=result.state.session_id, tenant=result.state.tenant)
        turn = result.verdict.turn
        reply = reply_record(text, at)

        def answered(state: SessionState) -> SessionState:
            return replace(
                state.with_reply(turn, self._kept(reply)),
                message_count=state.message_count + 1,
                # The clock may be set back; time never runs backwards inside a session.
                updated=max(state.updated, at),
            )

        def said(state: SessionState) -> TranscriptEntry:
            place = state.message_count
            return self._entry(Role.ASSISTANT, text, turn=turn, position=place, now=at)

        state = await self._change(key, answered, known=result.state, said=said)
        return replace(result, state=state, reply=text, reply_kind=reply.kind)

    def _input(
        self,
        text: str,
        *,
        contents: Sequence[Content | str] = (),
        client: ClientHints | None = None,
    ) -> TurnInput:
        if not isinstance(text, str):
            raise InputError("user_input must be a string.")
        return TurnInput(
            text=text,
            contents=tuple(Content(text=c) if isinstance(c, str) else c for c in contents),
            system=self.config.system_prompt,
            client=client or ClientHints(),
        )

    async def judge_state(self, state: SessionState, turn: TurnInput, *, now: float) -> TurnResult:
        """Judge one more turn of a session that the caller keeps; nothing is stored."""
        turn = self._permitted(state, turn, now)
        # In a thread, and from there perhaps in a child process: judging would stop the event loop.
        try:
            verdict, after = await asyncio.to_thread(
                offloaded, self.judge.judge, state, turn, now=now
            )
        except (EvaluationError, ModelError) as error:
            if self.config.on_evaluator_error == "raise":
                raise
            return self._unjudged(state, now, str(error))
        doubt = self.judge.weights.modes.mode_for(verdict.turn_risk)
        if self._second is not None and DOUBT[0] <= doubt <= DOUBT[1]:
            verdict, after = await self._second_opinion(state, turn, now, verdict, after)
        result = self._result(after, verdict)
        if not result.is_blocked:
            return result
        # The wording of the refusal is configurable; its kind must not depend on how it is
        # classified.
        refusal = reply_record(self.config.refusal, now)
        refused = after.with_reply(
            verdict.turn, self._kept(replace(refusal, kind=ReplyKind.REFUSED))
        )
        return replace(result, state=refused)

    def _result(self, state: SessionState, verdict: Verdict) -> TurnResult:
        """Return the result of a turn, with the refusal where it is blocked."""
        is_enforced = self.config.mode == "enforce"
        result = TurnResult(state=state, verdict=verdict, is_enforced=is_enforced)
        if not result.is_blocked:
            return result
        return replace(result, reply=self.config.refusal, reply_kind=ReplyKind.REFUSED)

    def _permitted(self, state: SessionState, turn: TurnInput, now: float) -> TurnInput:
        """Return the turn with what an operator said of these very words."""
        # Most installations allow no text; then none is hashed for the look-up.
        if not self.permissions.given:
            return turn
        application = key_name(state.session_id)
        found = self.permissions.find(state.tenant, application, turn.text, now=now)
        return turn if found is None else replace(turn, allowance=found.reason)

    async def _second_opinion(
        self,
        state: SessionState,
        turn: TurnInput,
        now: float,
        verdict: Verdict,
        after: SessionState,
    ) -> tuple[Verdict, SessionState]:
        """Return the verdict with a second opinion added; where that fails, it stands alone."""
        assert self._second is not None
        try:
            metrics = await self._second.evaluate(
                user=turn.text,
                system=system_of(state, turn) or None,
                history=said_before(state),
                # No name holds a line end, so that no two sessions share an allowance.
                session=f"{state.tenant}\n{state.session_id}",
            )
        except PromptGuardError as error:
            return replace(verdict, fault=f"Second opinion: {error}"), after
        return self.judge.reconsider(state, verdict, after, metrics.worst.falsehood, now=now)

    def _unjudged(self, state: SessionState, now: float, fault: str) -> TurnResult:
        """Return the result of a turn that no judge could judge: what the policy says."""
        # Whoever locked the session did not make it depend on a judge.
        is_locked = state.lock is not None
        is_refused = is_locked or self.config.on_evaluator_error == "block"
        turn = state.turn_count + 1
        return self._result(
            # Counted as a turn: the transcript and later verdicts number turns by this.
            replace(
                state,
                profile=replace(state.profile, turns=turn),
                created=state.created or now,
                updated=max(state.updated, now),
            ),
            Verdict(
                turn=turn,
                action=Action.BLOCK if is_refused else Action.ALLOW,
                mode=state.mode,
                accumulated_risk=state.accumulated_risk,
                is_locked=is_locked,
                fault=fault,
            ),
        )

    async def _saved(
        self,
        before: SessionState,
        result: TurnResult,
        turn: TurnInput,
        now: float,
        latency_ms: float,
    ) -> TurnResult:
        # Contents are stored as they came, not as they were stripped: a replay judges them again.
        spoken = [(Role.USER, turn.text), *((Role.TOOL, c.text) for c in turn.contents)]
        if result.reply:  # the refusal: no model was asked yet
            spoken.append((Role.ASSISTANT, result.reply))
        verdict = replace(result.verdict, latency_ms=round(latency_ms, 1)).to_json()
        entries = tuple(
            self._entry(
                role,
                text,
                turn=result.verdict.turn,
                position=before.message_count + index,
                now=now,
                # The verdict stands with the turn's first entry, where lists and replays look for
                # it.
                verdict="" if index else verdict,
            )
            for index, (role, text) in enumerate(spoken)
        )
        state = replace(
            self._redacted(result.state),
            version=before.version + 1,
            message_count=before.message_count + len(entries),
            config_hash=self._config_hash,
        )
        await self.store.save(state, expected_version=before.version, entries=entries)
        return replace(result, state=state)

    def _entry(
        self, role: Role, text: str, *, turn: int, position: int, now: float, verdict: str = ""
    ) -> TranscriptEntry:
        """Return one message as it is stored: with its text, its hash, or neither."""
        keeping = self.config.store_text
        return TranscriptEntry(
            position=position,
            turn=turn,
            role=role,
            content=text if keeping == "keep" else None,
            content_hash="" if keeping == "off" else content_hash(text),
            timestamp=now,
            verdict=verdict,
        )

    def _redacted(self, state: SessionState) -> SessionState:
        if self.config.store_text == "keep":
            return state
        return replace(
            state,
            # Key terms are words of the user, and the system prompt may hold secrets: both go with
            # the text.
            recent=tuple(replace(record, excerpt="", key_terms=()) for record in state.recent),
            segments=tuple(replace(segment, key_terms=()) for segment in state.segments),
            system="",
        )

    def _kept(self, reply: ReplyRecord) -> ReplyRecord:
        return reply if self.config.store_text == "keep" else replace(reply, excerpt="")

    def _model(self) -> Provider | None:
        if self._provider is None and self.config.model is not None:
            self._provider = open_provider(self.config.model, self.config.endpoint)
        return self._provider

    async def _prompt(self, result: TurnResult, turn: TurnInput) -> list[Message]:
        """Return what is kept of the history and this turn, hardened where the policy says so."""
        messages = []
        if self.config.system_prompt:
            messages.append(Message(role=Role.SYSTEM, content=self.config.system_prompt))
        if result.notice:
            messages.append(Message(role=Role.SYSTEM, content=result.notice))
        key = SessionKey(session_id=result.state.session_id, tenant=result.state.tenant)
        stored = await self.store.transcript(key)
        said = seen_by_model(stored, turn, result.verdict, is_enforced=result.is_enforced)
        return [*messages, *said]
