"""Structured logs: one JSON object per line, with names and numbers and never a message's text."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

LOGGER = logging.getLogger("promptguard.service")
AUDIT = logging.getLogger("promptguard.audit")
Field = str | int | float | bool | None | list[str]


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON; an exception as its type and place, not its words."""

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
            line["where"] = _where(record)
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


def _where(record: logging.LogRecord) -> list[str]:
    trace = record.exc_info[2] if record.exc_info else None
    places = []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}:{code.co_name}")
        trace = trace.tb_next
    return places[-6:]
