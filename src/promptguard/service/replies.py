"""Answers of the model on their way back: watched, cut where they must be, and recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from promptguard.controller import Controller
from promptguard.errors import StoreError
from promptguard.service.background import Background
from promptguard.service.intake import Admission, Intake
from promptguard.service.logs import log
from promptguard.service.reply_watch import ReplyWatch
from promptguard.service.telemetry import Telemetry

# Up to here an answer is read in less time than it takes to hand it to a thread and back.
SHORT_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyDesk:
    """What handling an answer takes, the same for whole and streamed ones."""

    controller: Controller
    intake: Intake
    telemetry: Telemetry
    background: Background

    @property
    def refusal(self) -> str:
        """What is said in place of an answer that is cut."""
        return self.controller.config.refusal

    def watcher(self, admission: Admission) -> Watcher:
        """Return a reader for the answer to one turn."""
        return Watcher(self, admission)

    async def record(self, admission: Admission, text: str) -> None:
        """Record an answer; a store that fails now does not take the answer from the client."""
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


class Watcher:
    """Watches the choices of one answer, off the event loop unless it is short."""

    def __init__(self, desk: ReplyDesk, admission: Admission) -> None:
        self._desk = desk
        self._admission = admission
        self._watches: list[ReplyWatch] = []

    async def is_bad(self, answers: Sequence[str]) -> bool:
        """Say whether the answer is to be cut; in detect mode it is only noted."""
        if sum(map(len, answers)) <= SHORT_CHARS:
            bad = self._judge(answers)
        else:
            bad = await asyncio.to_thread(self._judge, answers)
        if bad is None:
            return False
        admission = self._admission
        is_enforced = admission.result.is_enforced
        self._desk.telemetry.reply_cut()
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
        instinct = self._desk.controller.judge.instinct
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
