"""The settings in force, and their reload while turns are under way."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable

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
_FIXED_SERVICE = frozenset(
    {
        "host",
        "port",
        "upstream",
        "upstream_key_env",
        "upstream_timeout_s",
        "max_connections",
        "threads",
        "long_threads",
        "heavy_threads",
        "child_process",
        "max_waiting",
        "stream_timeout_s",
        "webhooks",
        "dashboard",
        "demo",
        "audit_file",
        "log_level",
        "shutdown_s",
    }
)
_FIXED_CONVERSATION = frozenset({"store", "model", "endpoint", "use_model"})


class LiveSettings:
    """The settings in force. Whatever a reload may change is read from here at each use.

    `written` are those of file and environment, `current` those with what operators applied.
    """

    def __init__(self, settings: Settings) -> None:
        self.written = settings
        self.current = settings


class Reloader:
    """Replaces the settings in force by those that `read` returns, wholly or not at all."""

    def __init__(
        self,
        live: LiveSettings,
        read: Callable[[], Settings],
        *,
        controller: Controller,
        authenticator: Authenticator,
        telemetry: Telemetry,
        audit: AuditLog,
        overlay: Callable[[Settings], Settings] = lambda written: written,
    ) -> None:
        self._live = live
        self._read = read
        self._controller = controller
        self._authenticator = authenticator
        self._telemetry = telemetry
        self._audit = audit
        self._overlay = overlay
        # Two reloads at once could leave the judge of one with the keys of the other.
        self._lock = asyncio.Lock()

    async def reload(self) -> bool:
        """Reload; a configuration that is not valid is logged and changes nothing."""
        async with self._lock:
            try:
                with self._audit.action("operator", "reload", "settings", tenant="default"):
                    # Rules are compiled and a turn is judged meanwhile; the event loop must go on.
                    await asyncio.to_thread(self._read_and_put)
            except PromptGuardError as error:
                log(logging.ERROR, "reload refused", reason=_public_reason(error))
                self._telemetry.reloaded("refused")
                return False
            log(logging.INFO, "reloaded")
            self._telemetry.reloaded("done")
            return True

    async def reapply(self) -> None:
        """Put the written settings in force with what the overlay says now; raises ConfigError."""
        async with self._lock:
            # The rules did not change, and to compile them again takes most of a second.
            rules = self._controller.judge.instinct
            await asyncio.to_thread(self._put, self._live.written, rules)

    def _read_and_put(self) -> None:
        self._put(self._read())

    def _put(self, written: Settings, rules: FrozenInstinct | None = None) -> None:
        new = self._overlay(written)
        # Everything is checked and tried before anything is replaced.
        _check_fixed(self._live.current, new)
        check_host(new.service.host, new.service.keys)
        # The encoder is kept: it takes seconds to load and cannot change by a reload.
        judge = TurnJudge.open(
            new.conversation, encoder=self._controller.judge.encoder, instinct=rules
        )
        try_out(judge)
        # What can fail below fails before it changes anything, so the new settings hold wholly or
        # not at all.
        self._controller.reconfigure(judge)
        self._authenticator.replace_keys(new.service.keys)
        self._live.written, self._live.current = written, new


def _public_reason(error: PromptGuardError) -> str:
    """Return why a reload failed, without the lines of the file that YAML errors quote."""
    text = str(error)
    place = re.findall(r"line \d+, column \d+", text)
    reason = text.partition("\n")[0] + (f" ({place[-1]})" if place else "")
    return without_credentials(reason)


def _check_fixed(old: Settings, new: Settings) -> None:
    fixed = [
        f"service.{name}"
        for name in sorted(_FIXED_SERVICE)
        if getattr(old.service, name) != getattr(new.service, name)
    ]
    fixed += [
        f"conversation.{name}"
        for name in sorted(_FIXED_CONVERSATION)
        if getattr(old.conversation, name) != getattr(new.conversation, name)
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
