"""The settings in force, and their reload while turns are under way."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from promptguard.config import Settings
from promptguard.controller import Controller
from promptguard.errors import ConfigError, PromptGuardError
from promptguard.fil.engine import FrozenInstinct
from promptguard.providers.registry import without_credentials
from promptguard.service.auth import Authenticator, check_host
from promptguard.service.logs import AuditLog, log
from promptguard.service.telemetry import Telemetry
from promptguard.state import SessionState
from promptguard.turns.input import TurnInput
from promptguard.turns.judge import TurnJudge

# Settings that sockets, threads or open connections were made from.
_FIXED = {
    "service": "audit_file child_process dashboard demo heavy_threads host log_level long_threads "
    "max_connections max_waiting port shutdown_s stream_timeout_s threads upstream "
    "upstream_key_env upstream_timeout_s webhooks",
    "conversation": "endpoint model store use_model",
}


class LiveSettings:
    """The settings in force. Whatever a reload may change is read from here at each use.

    `written` are those of file and environment, `current` those with what operators applied.
    """

    def __init__(self, settings: Settings) -> None:
        self.written = settings
        self.current = settings


@dataclass(frozen=True, slots=True)
class Reloader:
    """Replaces the settings in force by those that `read` returns, wholly or not at all."""

    live: LiveSettings
    read: Callable[[], Settings]
    _: KW_ONLY
    controller: Controller
    authenticator: Authenticator
    telemetry: Telemetry
    audit: AuditLog
    overlay: Callable[[Settings], Settings] = lambda written: written
    # Two reloads at once could leave the judge of one with the keys of the other.
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def reload(self) -> bool:
        """Reload; a configuration that is not valid is logged and changes nothing."""
        async with self._lock:
            try:
                with self.audit.action("operator", "reload", "settings", tenant="default"):
                    # Rules are compiled and a turn is judged meanwhile; the event loop must go on.
                    await asyncio.to_thread(lambda: self._put(self.read()))
            except PromptGuardError as error:
                log(logging.ERROR, "reload refused", reason=_public_reason(error))
                self.telemetry.reloaded("refused")
                return False
            log(logging.INFO, "reloaded")
            self.telemetry.reloaded("done")
            return True

    async def reapply(self) -> None:
        """Put the written settings in force with what the overlay says now; raises ConfigError."""
        async with self._lock:
            # The rules did not change, and to compile them again takes most of a second.
            rules = self.controller.judge.instinct
            await asyncio.to_thread(self._put, self.live.written, rules)

    def _put(self, written: Settings, rules: FrozenInstinct | None = None) -> None:
        new = self.overlay(written)
        # Everything is checked and tried before anything is replaced.
        _check_fixed(self.live.current, new)
        check_host(new.service.host, new.service.keys)
        # The encoder is kept: it takes seconds to load and cannot change by a reload.
        judge = TurnJudge.open(
            new.conversation, encoder=self.controller.judge.encoder, instinct=rules
        )
        try_out(judge)
        # What can fail below fails before it changes anything, so the new settings hold wholly or
        # not at all.
        self.controller.reconfigure(judge)
        self.authenticator.replace_keys(new.service.keys)
        self.live.written, self.live.current = written, new


def _public_reason(error: PromptGuardError) -> str:
    """Return why a reload failed, without the lines of the file that YAML errors quote."""
    text = str(error)
    place = re.findall(r"line \d+, column \d+", text)
    reason = text.partition("\n")[0] + (f" ({place[-1]})" if place else "")
    return without_credentials(reason)


def _check_fixed(old: Settings, new: Settings) -> None:
    fixed = [
        f"{section}.{name}"
        for section, names in _FIXED.items()
        for name in names.split()
        if getattr(getattr(old, section), name) != getattr(getattr(new, section), name)
    ]
    # Its models and cache were opened at the start.
    fixed += ["evaluation"] if old.evaluation != new.evaluation else []
    if fixed:
        raise ConfigError(
            f"{', '.join(fixed)} can change only at a restart, so nothing was reloaded; "
            "restart, or take the change back."
        )


def try_out(judge: TurnJudge) -> None:
    """Judge one harmless turn: loads what is loaded on first use, and raises what is broken."""
    judge.judge(SessionState(session_id="trial"), TurnInput(text="Good morning."), now=0.0)
    # The thorough reader is asked only in doubt, so a harmless turn would not load it.
    if judge.encoder is not None:
        judge.encoder.read_messages(("Good morning.",), thorough=True)
