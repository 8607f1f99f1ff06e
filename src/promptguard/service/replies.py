"""The model's answers on their way back: judged, held back, cut where they must be, recorded.

An answer is cut where the Frozen Instinct Layer finds a hard violation in it, and, in a
conversation that is SUSPECT or worse, where it becomes operational (steps, code or exact
amounts) or reaches the layer's blocking score. A refusal is never cut.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from promptguard.controller import Controller
from promptguard.core.prompt import without_lone_surrogates
from promptguard.errors import StoreError
from promptguard.fil.engine import FrozenInstinct
from promptguard.service.intake import Admission, Intake
from promptguard.service.lifecycle import Background
from promptguard.service.openai_wire import Completion
from promptguard.service.telemetry import Telemetry, log
from promptguard.signals.replies import classify_reply
from promptguard.state import ReplyKind
from promptguard.text.read import read_text
from promptguard.verdict import Mode

WATCH_FROM = Mode.SUSPECT
# Instructions fit in a few sentences; a window of this size, moved by less than half of
# itself, sees every one of them whole and keeps long answers cheap.
WINDOW_CHARS = 2000
_STEP_CHARS = 800
JUDGE_EVERY_CHARS = 200
# Up to here an answer is read in less time than it takes to hand it to a thread and back.
SHORT_CHARS = 400


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
    """Judges the choices of one answer, off the event loop unless it is short."""

    def __init__(self, recorder: ReplyRecorder, admission: Admission) -> None:
        self._recorder = recorder
        self._admission = admission
        self._watches: list[ReplyWatch] = []

    async def is_bad(self, answers: Sequence[str]) -> bool:
        """Say whether the answer is to be cut; in detect mode that is only counted and logged."""
        if sum(map(len, answers)) <= SHORT_CHARS:
            bad = self._judge(answers)
        else:
            bad = await asyncio.to_thread(self._judge, answers)
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
        )
        return is_enforced

    def _judge(self, answers: Sequence[str]) -> ReplyWatch | None:
        instinct = self._recorder.controller.judge.instinct
        mode = self._admission.state.mode
        while len(self._watches) < len(answers):
            self._watches.append(ReplyWatch(instinct, mode))
        return next(
            (
                watch
                for watch, text in zip(self._watches, answers, strict=False)
                if watch.judge(text)
            ),
            None,
        )


class ReplyWatch:
    """Reads one answer as it grows; `is_bad` stays true once it is."""

    def __init__(self, instinct: FrozenInstinct, mode: Mode) -> None:
        self._instinct = instinct
        self._is_suspect = mode >= WATCH_FROM
        self._read = 0
        self.reason = ""

    @property
    def is_bad(self) -> bool:
        """Whether the answer is to be cut."""
        return bool(self.reason)

    def judge(self, text: str) -> bool:
        """Judge the answer so far, of which `text` is all; returns `is_bad`."""
        # Models send emoji in halves, one surrogate per chunk.
        text = without_lone_surrogates(text)
        if self.is_bad or len(text) <= self._read:
            return self.is_bad
        kind = classify_reply(text)
        if kind is not ReplyKind.REFUSED:
            if self._is_suspect and kind is ReplyKind.OPERATIONAL:
                self.reason = "operational detail in a suspect conversation"
            else:
                self.reason = self._violation(text)
        self._read = len(text)
        return self.is_bad

    def _violation(self, text: str) -> str:
        # Windows that end in text not read before; earlier ones were judged already.
        start = max(0, self._read - WINDOW_CHARS + _STEP_CHARS)
        for at in range(start, len(text), _STEP_CHARS):
            reading = self._instinct.assess(read_text(text[at : at + WINDOW_CHARS]), now=0.0)
            if reading.is_hard:
                return "a hard violation"
            if self._is_suspect and reading.is_blocking and reading.violated:
                return "a violation in a suspect conversation"
            if at + WINDOW_CHARS >= len(text):
                break
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    data: str
    text: str
    end: int


class HoldBack:
    """Keeps the last `chars` characters of an answer back until it ends.

    Feed chunks with `take`; when `is_due`, judge `answers`; then `release` what may go. With
    `chars` 0 everything may go at once and is judged as it passes.
    """

    def __init__(self, chars: int) -> None:
        self._chars = chars
        self._held: deque[_Held] = deque()
        self._shown: dict[int, list[str]] = {}
        self._text: list[str] = []
        self._sent: list[str] = []
        self._length = 0
        self._judged = 0

    @property
    def answers(self) -> tuple[str, ...]:
        """What each choice shows so far, reasoning included."""
        return tuple("".join(parts) for _, parts in sorted(self._shown.items()))

    @property
    def text(self) -> str:
        """The answer proper of the first choice so far."""
        return "".join(self._text)

    @property
    def sent(self) -> str:
        """The part of `text` that was released."""
        return "".join(self._sent)

    @property
    def is_due(self) -> bool:
        """Whether enough has come to judge again."""
        return self._length - self._judged >= (self._chars or JUDGE_EVERY_CHARS)

    def take(self, data: str, completion: Completion) -> None:
        """Add a chunk, given as it came and as it was read."""
        text = ""
        for choice in completion.choices:
            self._shown.setdefault(choice.index, []).append(choice.shown)
            self._length += len(choice.shown)
            if choice.index == 0:
                text += choice.text
        # Lengths count all choices together: holding back too much is safe, too little is not.
        self._text.append(text)
        self._held.append(_Held(data=data, text=text, end=self._length))

    def judged(self) -> None:
        """Record that everything so far was judged and is in order."""
        self._judged = self._length

    def release(self, *, everything: bool = False) -> list[str]:
        """Return the chunks that may go now, in order."""
        limit = self._length if everything or not self._chars else self._judged - self._chars
        released = []
        while self._held and self._held[0].end <= max(limit, 0):
            held = self._held.popleft()
            released.append(held.data)
            self._sent.append(held.text)
        return released
