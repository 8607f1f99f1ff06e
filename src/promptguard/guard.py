"""The way in for applications: whole message lists, contents and replies, sync and async.

`AsyncGuard` does the work; `Guard` has the same methods for code without an event loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

from promptguard.config import ControllerConfig, load_settings
from promptguard.controller import Controller
from promptguard.conversation import Message, Role, content_hash, messages_from
from promptguard.corpus import ConversationVerdict, judge_corpus
from promptguard.errors import Blocked, EvaluationError, ModelError
from promptguard.protocols import SessionKey, SessionStore
from promptguard.risk.ledger import STRIPPED
from promptguard.state import SessionState
from promptguard.turns.exchanges import (
    Exchange,
    exchanges_of,
    prefix_hashes,
    recorded_turns,
    system_of,
    unseen,
)
from promptguard.turns.input import Content
from promptguard.turns.judge import TurnJudge
from promptguard.turns.replies import ReplyVerdict, judge_reply, protected_in, reply_record
from promptguard.turns.result import TurnResult, withheld_digests
from promptguard.turns.walk import SECONDS_BETWEEN_TURNS
from promptguard.verdict import Action, ContentFinding, Verdict

T = TypeVar("T")
# States of conversations without a session id, about 20 KB each.
MAX_REMEMBERED = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """Where a conversation without a session id stands; `stripped` are hashes of contents."""

    result: TurnResult
    stripped: frozenset[str]


class AsyncGuard:
    """Judges conversations in one event loop; opened from a configuration, closed after use.

    Sessions are kept in memory unless the configuration names a store. `judge` and `store` take
    the place of what the configuration would open.
    """

    def __init__(
        self,
        config: ControllerConfig | None = None,
        *,
        judge: TurnJudge | None = None,
        store: SessionStore | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        chosen = config or (judge.config if judge is not None else ControllerConfig())
        if "store" not in chosen.model_fields_set:
            chosen = chosen.model_copy(update={"store": "memory:"})
        self.config = chosen
        self._given_judge = judge
        self._controller = Controller(chosen, store=store, judge=judge, clock=clock)
        self._judged: OrderedDict[bytes, _Judged] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    def from_settings(cls, path: str | Path | None = None) -> Self:
        """Open a guard by the settings file, the environment and their defaults."""
        return cls(load_settings(path).conversation)

    async def judge(
        self,
        messages: str | Sequence[object],
        session_id: str | None = None,
        system: str | None = None,
    ) -> TurnResult:
        """Judge what is new in a message list; the result is that of its last turn.

        With `session_id` the list is compared with what the session has seen, and may also hold
        only the new messages. Without one the list is the whole conversation, and time between
        turns is not looked at. `system` takes the place of the list's system messages. A list
        judged before gets its verdict again and counts once.
        """
        if isinstance(messages, str):
            messages = (Message(role=Role.USER, content=messages),)
        read = messages_from(messages)
        exchanges = exchanges_of(read)
        told = (system_of(read) if system is None else system) or self.config.system_prompt
        if session_id is None:
            judged = await self._judge_whole(exchanges, told)
        else:
            # One after the other: a list that is judged twice at once must count once.
            async with self._locks.setdefault(session_id, asyncio.Lock()):
                judged = await self._judge_session(exchanges, told, session_id)
        return replace(judged.result, withheld=self._withheld(exchanges, judged.stripped))

    async def judge_content(
        self, text: str, task: str = "", origin: str = "tool"
    ) -> ContentFinding:
        """Judge one tool result, document or tool description; `task` is what the user asked.

        Keeps no session. Where it cannot be judged, `on_evaluator_error` decides.
        """
        try:
            contents, judge = (Content(text=text, origin=origin),), self._controller.judge.contents
            return (await asyncio.to_thread(judge.judge, contents, task))[0]
        except (EvaluationError, ModelError) as error:
            return self._unjudged_content(origin, error)

    async def screen(self, text: str, task: str = "", origin: str = "tool") -> str:
        """Return a content as a model may see it: itself, or the note that replaces it.

        Raises Blocked where the policy blocks poisoned content instead of stripping it.
        """
        finding = await self.judge_content(text, task, origin)
        if not self._is_enforced:
            return text
        if finding.action is Action.BLOCK:
            raise Blocked("The content was blocked; `verdict` says why.", finding)
        return STRIPPED if finding.action is Action.STRIP else text

    async def judge_reply(
        self, text: str, session_id: str | None = None, system: str = "", *, is_whole: bool = True
    ) -> ReplyVerdict:
        """Judge an answer and, with `session_id`, record it as the answer to its last turn.

        `system` is the application's prompt, which the answer must not give away. An answer so
        far (`is_whole=False`) is judged and not recorded.
        """
        state = None
        if session_id is not None:
            state = await self._controller.store.load(SessionKey(session_id=session_id))
        verdict = await asyncio.to_thread(self._reply, text, state, system)
        if state is not None and is_whole:
            await self._record_reply(state, text)
        return replace(verdict, is_enforced=self._is_enforced)

    async def judge_many(
        self, conversations: object, jobs: int | None = None
    ) -> AsyncIterator[ConversationVerdict]:
        """Yield a verdict for each conversation, in order; see `Guard.judge_many`."""
        rest, one_by_one = self._many(conversations, jobs), threading.Lock()

        def step(work: Callable[[], T]) -> T:
            # A caller that was cancelled leaves a conversation being judged.
            with one_by_one:
                return work()

        try:
            while (found := await asyncio.to_thread(step, lambda: next(rest, None))) is not None:
                yield found
        finally:
            # Closing it ends the processes that share the work.
            await asyncio.to_thread(step, rest.close)

    async def close(self) -> None:
        """Release the store."""
        await self._controller.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __reduce__(self) -> tuple[type[Self], tuple[ControllerConfig]]:
        """Pickle the configuration: the copy has the same judgement and sessions of its own."""
        return type(self), (self.config,)

    def _many(
        self, conversations: object, jobs: int | None
    ) -> Generator[ConversationVerdict, None, None]:
        return judge_corpus(conversations, self.config, judge=self._given_judge, jobs=jobs)

    @property
    def _is_enforced(self) -> bool:
        return self.config.mode == "enforce"

    async def _judge_session(
        self, exchanges: Sequence[Exchange], system: str, session_id: str
    ) -> _Judged:
        """Judge what a stored session has not seen, and record it."""
        key, store = SessionKey(session_id=session_id), self._controller.store
        stored = recorded_turns(await store.transcript(key))
        state = await store.load(key)
        new = unseen(exchanges, stored)
        stripped = frozenset(content for turn in stored for content in turn.withheld)
        # Without digests nothing says what was withheld, so earlier contents are judged again.
        again = exchanges[:-1] if any(not turn.digest for turn in stored) else ()
        for text, task in [(text, each.text) for each in again for text in each.contents]:
            if (await self.judge_content(text, task)).is_withheld:
                stripped |= {content_hash(text)}
        result = None
        if state is not None and stored:
            # New turns may stand between known ones. Without digests the last turn is the one seen.
            seen = [each for each in exchanges if not any(each is one for one in new)]
            digest = stored[-1].digest
            answers = [each.reply for each in seen if not digest or each.digest == digest]
            if answers and answers[-1] and not stored[-1].is_answered:
                state = await self._record_reply(state, answers[-1])
            result = self._repeated(state, stored[-1].verdict)
        for exchange in new:
            result = await self._controller.judge_turn(session_id, exchange.turn(system))
            stripped |= withheld_digests(exchange.contents, result.verdict)
            if exchange.reply and not result.is_blocked:
                await self._controller.record_reply(result, exchange.reply)
        assert result is not None  # without a stored turn every exchange is new
        return _Judged(result=result, stripped=stripped)

    async def _judge_whole(self, exchanges: Sequence[Exchange], system: str) -> _Judged:
        """Judge a conversation that has no name; its longest known beginning is not judged again.

        The state after a beginning follows from its words alone, so that two users who begin
        alike may share the memory of it, and nothing else.
        """
        names = prefix_hashes(exchanges, system)
        known = next((n for n in range(len(names), 0, -1) if names[n - 1] in self._judged), 0)
        judged = self._judged[names[known - 1]] if known else None
        if judged is not None:
            self._judged.move_to_end(names[known - 1])
        for index in range(known, len(exchanges)):
            state = SessionState(session_id=f"list-{names[0].hex()}")
            if judged:
                state = _after(exchanges[index - 1], judged)
            # Not by timestamps, of which the name of a beginning says nothing.
            now = state.updated + SECONDS_BETWEEN_TURNS
            turn = exchanges[index].turn(system)
            result = await self._controller.judge_state(state, turn, now=now)
            stripped = withheld_digests(exchanges[index].contents, result.verdict)
            earlier = judged.stripped if judged else frozenset()
            judged = _Judged(result=result, stripped=earlier | stripped)
            if not result.verdict.fault:
                self._judged[names[index]] = judged
                if len(self._judged) > MAX_REMEMBERED:
                    self._judged.popitem(last=False)
        assert judged is not None  # there is always one exchange
        return judged

    async def _record_reply(self, state: SessionState, text: str) -> SessionState:
        return (await self._controller.record_reply(self._repeated(state, None), text)).state

    def _repeated(self, state: SessionState, verdict: Verdict | None) -> TurnResult:
        """Return the result of a turn that was judged before."""
        verdict = verdict or Verdict(turn=state.turn_count, action=Action.ALLOW)
        if state.lock is not None:  # since then, by somebody who shares the store
            verdict = replace(verdict, action=Action.BLOCK, is_locked=True)
        result = TurnResult(state=state, verdict=verdict, is_enforced=self._is_enforced)
        return replace(result, reply=self.config.refusal) if result.is_blocked else result

    def _withheld(self, exchanges: Sequence[Exchange], stripped: frozenset[str]) -> tuple[int, ...]:
        if not self._is_enforced or not stripped:
            return ()
        return tuple(
            place
            for exchange in exchanges
            for text, place in zip(exchange.contents, exchange.places, strict=True)
            if content_hash(text) in stripped
        )

    def _reply(self, text: str, state: SessionState | None, system: str) -> ReplyVerdict:
        state = state or SessionState(session_id="")
        spoken = "\n".join(record.excerpt for record in state.recent)
        protected = protected_in(system or self.config.system_prompt, spoken=spoken)
        instinct = self._controller.judge.instinct
        return judge_reply(text, instinct, mode=state.mode, protected=protected)

    def _unjudged_content(self, origin: str, error: Exception) -> ContentFinding:
        """Return what the policy says of a content that no judge could judge."""
        if self.config.on_evaluator_error == "raise":
            raise error
        is_kept = self.config.on_evaluator_error == "allow"
        action = Action.ALLOW if is_kept else Action(self.config.policy.content_action)
        return ContentFinding(
            index=0, origin=origin, risk=0.0, action=action, reason=f"not judged: {error}"
        )


class Guard:
    """Judges conversations for code without an event loop; safe to share between threads.

    Takes what `AsyncGuard` takes and has its methods, which run in a loop of its own. In code
    that has a loop use `AsyncGuard`: this one makes the caller wait.
    """

    def __init__(
        self,
        config: ControllerConfig | None = None,
        *,
        judge: TurnJudge | None = None,
        store: SessionStore | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._guard = AsyncGuard(config, judge=judge, store=store, clock=clock)
        self.config = self._guard.config
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def from_settings(cls, path: str | Path | None = None) -> Self:
        """Open a guard by the settings file, the environment and their defaults."""
        return cls(load_settings(path).conversation)

    def judge(
        self,
        messages: str | Sequence[object],
        session_id: str | None = None,
        system: str | None = None,
    ) -> TurnResult:
        """Judge what is new in a message list; see `AsyncGuard.judge`."""
        return self._run(self._guard.judge(messages, session_id, system))

    def judge_content(self, text: str, task: str = "", origin: str = "tool") -> ContentFinding:
        """Judge one tool result, document or tool description; see `AsyncGuard.judge_content`."""
        return self._run(self._guard.judge_content(text, task, origin))

    def screen(self, text: str, task: str = "", origin: str = "tool") -> str:
        """Return a content as a model may see it; see `AsyncGuard.screen`."""
        return self._run(self._guard.screen(text, task, origin))

    def judge_reply(
        self, text: str, session_id: str | None = None, system: str = "", *, is_whole: bool = True
    ) -> ReplyVerdict:
        """Judge an answer and record it; see `AsyncGuard.judge_reply`."""
        return self._run(self._guard.judge_reply(text, session_id, system, is_whole=is_whole))

    def judge_many(
        self, conversations: object, jobs: int | None = None
    ) -> Iterator[ConversationVerdict]:
        """Yield a verdict for each conversation, in order; one that cannot be judged has `error`.

        Takes lists, iterators, data frames (pandas, polars), Arrow tables and Hugging Face
        datasets of message lists, texts or rows with `messages` or `text`. `jobs` processes
        share the work; by default one per core. Each conversation stands for itself: no session
        is read or written.
        """
        return self._guard._many(conversations, jobs)

    def close(self) -> None:
        """Release the store and end the loop."""
        self._run(self._ended())
        with self._lock:
            if self._loop is not None and self._thread is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
            self._loop = self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Self], tuple[ControllerConfig]]:
        return type(self), (self.config,)

    async def _ended(self) -> None:
        await self._guard.close()
        # Whoever still waits in another thread would wait for ever once the loop has stopped.
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            await asyncio.wait((task,))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            return future.result()
        except BaseException:
            # After Ctrl-C the work would go on in the loop's thread.
            future.cancel()
            raise

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # A forked child has the thread's object, but not the thread.
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
                self._thread.start()
            return self._loop


def _after(exchange: Exchange, judged: _Judged) -> SessionState:
    state = judged.result.state
    if not exchange.reply:
        return state
    return state.with_reply(state.turn_count, reply_record(exchange.reply, state.updated))
