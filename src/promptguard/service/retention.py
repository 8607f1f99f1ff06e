"""The retention job: stored text is dropped once it is old enough."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from promptguard.controller import Controller
from promptguard.errors import StoreError
from promptguard.service.logs import log
from promptguard.service.telemetry import Telemetry

EVERY_S = 3600.0
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Runs every hour; several processes on one store do each other no harm."""

    controller: Controller
    telemetry: Telemetry
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.once()
            await self.sleep(EVERY_S)

    async def once(self) -> int:
        """Drop what is too old now; return how many texts."""
        days = self.controller.config.retention_days
        if days is None:
            return 0
        try:
            count = await self.controller.store.redact(before=self.clock() - days * _DAY_S)
        except StoreError as error:
            log(logging.ERROR, "retention failed", error=error)
            return 0
        self.telemetry.redacted(count)
        if count:
            log(logging.INFO, "retention", redacted=count)
        return count
