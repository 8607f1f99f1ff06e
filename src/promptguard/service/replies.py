"""The model's answers on their way back: judged, held back, cut where they must be, recorded.

What makes an answer bad is decided in `turns.replies`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from promptguard.controller import Controller
from promptguard.errors import StoreError
from promptguard.service.intake import Admission, Intake
from promptguard.service.lifecycle import Background
from promptguard.service.logs import log
from promptguard.service.telemetry import Telemetry
from promptguard.service.wire import AnswerPart
from promptguard.turns.replies import Protected, ReplyWatch, protected_in

JUDGE_EVERY_CHARS = 200
# Up to here an answer is read in less time than it takes to hand it to a thread and back.
SHORT_CHARS = 400
# What is recorded of an answer; all of it is judged.
MAX_RECORDED = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRecorder:
    """Judges and records answers, whole and streamed ones alike."""

    controller: Controller
    intake: Intake
    telemetry: Telemetry
    background: Background

    @property
    def refusal(self) -> str:
        """The text sent in place of an answer that is cut."""
        return self.controller.config.refusal

    def judge_of(self, admission: Admission) -> ReplyJudge:
        """Return the judge for the answer to one turn."""
        return ReplyJudge(self, admission)

    async def record(self, admission: Admission, text: str) -> None:
        """Record an answer. A failing store is only logged: the answer itself is in order."""
        try:
            await self.intake.answered(admission, text)
        except StoreError as error:
            log(
                logging.ERROR,
                "reply not recorded",
                error=error,
                session=admission.key.session_id,
                tenant=admission.key.tenant,
            )


class ReplyJudge:
    """Judges the choices of one answer as they grow, off the event loop unless little came."""

    def __init__(self, recorder: ReplyRecorder, admission: Admission) -> None:
        self._recorder = recorder
        self._admission = admission
        self._watches: dict[int, ReplyWatch] = {}
        self._protected: Protected | None = None

    async def is_bad(self, answers: Sequence[str]) -> bool:
        """Say whether whole answers, one for each choice, are to be cut."""
        return await self.grows_bad(dict(enumerate(answers)))

    async def grows_bad(self, pieces: Mapping[int, str]) -> bool:
        """Say whether the answer is to be cut after `pieces`, what each choice shows more.

        In detect mode that is only counted and logged. Raises an ApiError where the lane is full.
        """
        if not pieces:
            return False
        is_short = sum(map(len, pieces.values())) <= SHORT_CHARS
        # With a prompt to protect even a short piece is compared with all of it, which takes
        # longer.
        if is_short and not self._admission.system:
            bad = self._judge(pieces)
        else:
            bad = await asyncio.to_thread(self._judge, pieces)
        if bad is None:
            return False
        admission = self._admission
        is_enforced = admission.result.is_enforced
        self._recorder.telemetry.reply_cut()
        log(
            logging.WARNING,
            "reply cut" if is_enforced else "reply would be cut",
            session=admission.key.session_id,
            tenant=admission.key.tenant,
            turn=admission.state.turn_count,
            reason=bad.reason,
            tags=list(bad.tags),
        )
        return is_enforced

    def _judge(self, pieces: Mapping[int, str]) -> ReplyWatch | None:
        for index, piece in pieces.items():
            if index not in self._watches:
                self._watches[index] = self._watch()
            if self._watches[index].feed(piece):
                return self._watches[index]
        return None

    def _watch(self) -> ReplyWatch:
        judge, admission = self._recorder.controller.judge, self._admission
        reached = judge.weights.modes.mode_for(admission.result.verdict.turn_risk)
        # The turn itself may be worse than what the session has shown before it.
        mode = max(admission.result.state.mode, reached)
        # Once for all choices: what the user said may be megabytes.
        if self._protected is None:
            self._protected = protected_in(admission.system, spoken=admission.spoken)
        return ReplyWatch(judge.instinct, mode, protected=self._protected)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    data: str
    text: str
    end: int


class HoldBack:
    """Keeps the last `chars` characters of an answer back until it ends.

    Feed events with `take`; when `is_due`, judge what `take_unjudged` gives; then `release` what
    may go. With `chars` 0 everything may go at once and is judged as it passes.
    """

    def __init__(self, chars: int) -> None:
        self._chars = chars
        self._held: deque[_Held] = deque()
        self._unjudged: dict[int, list[str]] = {}
        self._text = _Recorded()
        self._sent = _Recorded()
        self._length = 0
        self._judged = 0

    @property
    def text(self) -> str:
        """The answer proper of the first choice so far, as much as is recorded."""
        return self._text.text

    @property
    def sent(self) -> str:
        """The part of `text` that was released."""
        return self._sent.text

    @property
    def is_due(self) -> bool:
        """Whether enough has come to judge again."""
        return self._length - self._judged >= (self._chars or JUDGE_EVERY_CHARS)

    def take(self, data: str, completion: AnswerPart) -> None:
        """Add an event, given as it came and as it was read."""
        text = ""
        for choice in completion.choices:
            # Each choice by itself: mixed together, neither would read as what it says.
            self._unjudged.setdefault(choice.index, []).append(choice.shown)
            self._length += len(choice.shown)
            if choice.index == 0:
                text += choice.text
        # Lengths count all choices together: holding back too much is safe, too little is not.
        self._text.add(text)
        self._held.append(_Held(data=data, text=text, end=self._length))

    def take_unjudged(self) -> dict[int, str]:
        """Return what each choice shows beyond what was judged; it counts as judged then."""
        unjudged = {index: "".join(parts) for index, parts in sorted(self._unjudged.items())}
        self._unjudged.clear()
        self._judged = self._length
        return unjudged

    def release(self, *, everything: bool = False) -> list[str]:
        """Return the events that may go now, in order."""
        limit = self._length if everything or not self._chars else self._judged - self._chars
        released = []
        while self._held and self._held[0].end <= max(limit, 0):
            held = self._held.popleft()
            released.append(held.data)
            self._sent.add(held.text)
        return released

    def drop(self) -> None:
        """Forget what was not released: it never will be."""
        self._held.clear()
        self._unjudged.clear()
        self._text = self._sent


class _Recorded:
    """A growing text, up to MAX_RECORDED characters."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def add(self, text: str) -> None:
        kept = text[: MAX_RECORDED - self._length]
        self._length += len(kept)
        if kept:
            self._parts.append(kept)
