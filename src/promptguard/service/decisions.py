"""Operators' decisions in force: texts that pass, settings over those of the file.

The store holds them, so they survive a restart and reach every process of a fleet.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from promptguard.config import Settings
from promptguard.controller import Controller
from promptguard.decisions import (
    Allowance,
    AppliedSettings,
    Decision,
    DecisionKind,
    Permissions,
    applied_in,
)
from promptguard.errors import ConfigError, PromptGuardError
from promptguard.risk.weights import PRESETS
from promptguard.service.logs import AuditLog, log

INTERVAL_S = 30.0


@dataclass(slots=True, eq=False)
class Decisions:
    """Reads, makes and takes back decisions; each is audited before it is done.

    `applied` is in force; `reapply`, where it is set, puts it there.
    """

    controller: Controller
    audit: AuditLog
    _: KW_ONLY
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    applied: AppliedSettings = field(default_factory=AppliedSettings, init=False)
    reapply: Callable[[], Awaitable[None]] | None = field(default=None, init=False)
    # What was read before a decision must not be put in force after it.
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def refresh(self) -> None:
        """Put in force what the store holds; a file that is gone or changed is not applied."""
        async with self._lock:
            stored = await self.controller.store.decisions()
            self.controller.permissions = Permissions(stored)
            wanted = applied_in(stored)
            if wanted == self.applied:
                return
            try:
                await self._put(wanted)
            except ConfigError as error:
                log(logging.ERROR, "applied settings are not in force", reason=str(error))

    async def follow(self) -> None:
        """Refresh now and then until cancelled: another process may have decided something."""
        while True:
            await self.sleep(INTERVAL_S)
            try:
                await self.refresh()
            except Exception as error:  # whatever fails now may do the next time
                log(logging.WARNING, "decisions not read", error=error)

    def overlaid(self, written: Settings) -> Settings:
        """Return the settings with what was applied; raises ConfigError where that is gone."""
        applied, conversation = self.applied, written.conversation
        changes: dict[str, object] = {}
        if applied.preset:
            # A budget of the file would stand over the preset that was chosen.
            changes |= {"preset": applied.preset, "false_positive_budget": None}
        if applied.weights:
            path = weights_path(written, applied.weights)
            # What an administrator tried out is applied, and not what lies there since.
            if applied.sha256 != _hash_of(path):
                raise ConfigError(f"{path} is not what was applied; apply it anew.")
            changes["weights"] = str(path)
        return written.model_copy(update={"conversation": conversation.model_copy(update=changes)})

    async def apply(
        self, author: str, tenant: str, settings: Settings, choice: str
    ) -> AppliedSettings:
        """Put `choice` in force and record it; raises ConfigError and StoreError.

        A choice is a preset or a file of the weights folder; the other of the two stays. An empty
        one goes back to the settings file.
        """
        wanted = self.wanted(settings, choice)
        with self.audit.action(author, "apply", wanted.name, tenant=tenant):
            async with self._lock:
                before = self.applied
                # In force first: settings that cannot be opened must not be recorded.
                await self._put(wanted)
                try:
                    await self._decide(DecisionKind.APPLY, author, wanted.to_json())
                except PromptGuardError:
                    await self._put(before)
                    raise
        return wanted

    def wanted(self, settings: Settings, choice: str) -> AppliedSettings:
        """Return what applying a choice would put in force."""
        if not choice:
            return AppliedSettings()
        if choice in PRESETS:
            return replace(self.applied, preset=choice)
        path = weights_path(settings, choice)
        return replace(self.applied, weights=choice, sha256=_hash_of(path))

    async def allow(self, author: str, tenant: str, allowance: Allowance) -> None:
        """Let a text pass from now on."""
        target = f"{allowance.session_id}#turn-{allowance.turn}"
        with self.audit.action(author, "allow", target, tenant=tenant):
            await self._decide(DecisionKind.ALLOW, author, allowance.to_json(), tenant)
            await self.refresh()

    async def withdraw(self, author: str, tenant: str, number: int) -> None:
        """Take an allowance of the tenant back; one that is not there is no error."""
        given = self.controller.permissions.given
        if not any(each.number == number and each.tenant == tenant for each in given):
            return
        with self.audit.action(author, "withdraw", f"allowance {number}", tenant=tenant):
            await self._decide(DecisionKind.WITHDRAW, author, str(number), tenant)
            await self.refresh()

    async def _put(self, wanted: AppliedSettings) -> None:
        # The overlay reads it during the reapplication, so it is set first and taken back on
        # failure.
        before, self.applied = self.applied, wanted
        try:
            if self.reapply is not None:
                await self.reapply()
        except Exception:
            self.applied = before
            raise

    async def _decide(
        self, kind: DecisionKind, author: str, body: str, tenant: str = "default"
    ) -> None:
        author, now = author or "local", self.clock()
        decision = Decision(kind=kind, author=author, timestamp=now, body=body, tenant=tenant)
        await self.controller.store.decide(decision)


def weights_offered(settings: Settings) -> tuple[str, ...]:
    """Return the names of the weights files that can be tried out."""
    folder = settings.service.weights_folder
    if folder is None:
        return ()
    return tuple(sorted(path.name for path in Path(folder).glob("*.toml") if path.is_file()))


def weights_path(settings: Settings, name: str) -> Path:
    """Return the path of an offered weights file; any other name is a ConfigError."""
    # Compared with the list of the folder, so that no name leads out of it.
    if name not in weights_offered(settings):
        raise ConfigError("There is no such file in service.weights_folder.")
    return Path(str(settings.service.weights_folder)) / name


def _hash_of(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        raise ConfigError(f"Cannot read the weights file {path}.") from None
