"""Structured logs and the audit log. Neither ever holds message text."""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from traceback import walk_tb
from types import TracebackType
from typing import TextIO

from promptguard.errors import ConfigError

LOGGER = logging.getLogger("promptguard.service")
AUDIT = logging.getLogger("promptguard.audit")
Field = str | int | float | bool | None | list[str]


class AuditLog:
    """Records administrative actions, also failed ones, in the log and in a file if named."""

    def __init__(
        self,
        path: str | None,
        *,
        clock: Callable[[], float],
        on_label: Callable[[str, str, str], None] | None = None,
    ) -> None:
        self._path = path
        self._clock = clock
        self._on_label = on_label
        if path is not None:
            # Found out at the start: better no service than actions without a trace.
            self._append(path, "")

    @contextmanager
    def action(
        self, actor: str, action: str, target: str, *, tenant: str, done: str = "done"
    ) -> Iterator[None]:
        """Record an action before the block does it, and its outcome after it.

        Raises ConfigError where the first record cannot be written, so that nothing is done
        without a trace. `done` is the outcome of a block that does not raise. `on_label` is
        told of labels, with session, tenant and outcome.
        """
        self.record(actor, action, target, "begun", tenant=tenant)
        outcome = done
        try:
            yield
        except BaseException as error:  # one that was cancelled has an outcome as well
            outcome = type(error).__name__
            raise
        finally:
            try:
                self.record(actor, action, target, outcome, tenant=tenant)
            except ConfigError as error:
                # The action cannot be undone, and its beginning is on record.
                log(logging.ERROR, "audit outcome not recorded", error=error)
        if action == "label" and self._on_label is not None:
            self._on_label(target, tenant, done)

    def record(self, actor: str, action: str, target: str, outcome: str, *, tenant: str) -> None:
        """Record that `actor` did `action` to `target`, which is of `tenant`."""
        fields = {"actor": actor or "local", "action": action, "target": target}
        fields |= {"tenant": tenant, "outcome": outcome}
        AUDIT.log(logging.INFO, "audit", extra={"fields": fields})
        if self._path is not None:
            at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
            self._append(self._path, json.dumps({"time": at, **fields}) + "\n")

    def _append(self, path: str, line: str) -> None:
        text = line.encode()
        try:
            file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                # One write in append mode, so that lines of several processes do not mix.
                if os.write(file, text) < len(text):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(file)
        except OSError as error:
            message = f"The audit file {path} cannot be written: {error.strerror}."
            raise ConfigError(message) from None


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON.

    An exception is written as its type and place: its message may quote user text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line |= fields
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            line["where"] = _where(record.exc_info[2])
        # Line breaks of every kind are escaped, so that nobody can forge a line.
        return json.dumps(line, ensure_ascii=True, default=str)


def log(level: int, event: str, /, *, error: BaseException | None = None, **fields: Field) -> None:
    """Write one event."""
    LOGGER.log(level, event, extra={"fields": fields}, exc_info=error)


def set_up_logs(level: str, stream: TextIO | None = None) -> None:
    """Send our logs and the server's to `stream` (standard error) as JSON."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("promptguard", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper() if name == "promptguard" else logging.WARNING)


def _where(trace: TracebackType | None) -> list[str]:
    places = [
        f"{frame.f_code.co_filename.rpartition('/')[2]}:{line}:{frame.f_code.co_name}"
        for frame, line in walk_tb(trace)
    ]
    # The innermost calls tell the place; the outermost are the framework's.
    return places[-6:]
