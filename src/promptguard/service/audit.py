"""Who did what to the service or to a session: a log of its own, and a file where one is named."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from promptguard.errors import ConfigError
from promptguard.service.logs import AUDIT


class AuditLog:
    """Records administrative actions, those that failed as well."""

    def __init__(self, path: str | None, *, clock: Callable[[], float]) -> None:
        self._path = None if path is None else Path(path)
        self._clock = clock
        if self._path is not None:
            self._append("")

    def record(self, actor: str, action: str, target: str, outcome: str) -> None:
        """Note that `actor` did `action` to `target`."""
        fields = {"actor": actor or "local", "action": action, "target": target, "outcome": outcome}
        AUDIT.log(logging.INFO, "audit", extra={"fields": fields})
        if self._path is not None:
            at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
            self._append(json.dumps({"time": at, **fields}) + "\n")

    def _append(self, line: str) -> None:
        assert self._path is not None
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise ConfigError(
                f"The audit file {self._path} cannot be written: {error.strerror}."
            ) from None
