"""Metrics, structured logs and the audit log. None of them ever holds message text."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from opentelemetry import trace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from promptguard.errors import ConfigError
from promptguard.service.lanes import current_call
from promptguard.service.tracing import Tracing
from promptguard.service.verdicts import is_judged, log_fields, span_attributes
from promptguard.turns.result import TurnResult

LOGGER = logging.getLogger("promptguard.service")
AUDIT = logging.getLogger("promptguard.audit")
Field = str | int | float | bool | None | list[str]

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_LONG_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposition:
    """The metrics as Prometheus reads them."""

    body: bytes
    content_type: str = CONTENT_TYPE_LATEST


TurnListener = Callable[[TurnResult], None]


class Telemetry:
    """The metrics and spans of one service, in a registry of its own."""

    def __init__(
        self,
        *,
        tracing: Tracing | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.tracing = tracing or Tracing()
        self._timer = timer
        self._listeners: list[TurnListener] = []
        # Not the process-wide registry: tests and embedders run several services in one process.
        self._registry = registry = CollectorRegistry()
        self._turns = Counter(
            "promptguard_turns", "Turns judged, by action", ["action"], registry=registry
        )
        self._unjudged = Counter(
            "promptguard_turns_unjudged", "Turns no judge could judge", registry=registry
        )
        self._turn_seconds = Histogram(
            "promptguard_turn_seconds",
            "Time to judge and record a turn",
            registry=registry,
            buckets=_SECONDS,
        )
        self._history = Counter(
            "promptguard_histories", "Resent histories, by kind", ["kind"], registry=registry
        )
        self._cut = Counter(
            "promptguard_replies_cut", "Replies of the model cut short", registry=registry
        )
        self._upstream_errors = Counter(
            "promptguard_upstream_errors", "Upstream failures, by kind", ["kind"], registry=registry
        )
        self._upstream_seconds = Histogram(
            "promptguard_upstream_seconds",
            "Time until the upstream's headers (streams) or whole answer",
            registry=registry,
            buckets=_LONG_SECONDS,
        )
        self._requests = Counter(
            "promptguard_requests",
            "Requests, by route and status",
            ["route", "status"],
            registry=registry,
        )
        self._in_flight = Gauge(
            "promptguard_requests_in_flight", "Requests under way", registry=registry
        )
        self._reloads = Counter(
            "promptguard_reloads", "Reloads of the settings", ["outcome"], registry=registry
        )
        self._redacted = Counter(
            "promptguard_entries_redacted", "Stored texts dropped by retention", registry=registry
        )

        self._webhooks = Counter(
            "promptguard_webhooks", "Webhook events, by outcome", ["outcome"], registry=registry
        )

    def on_turn(self, listener: TurnListener) -> None:
        """Call `listener` with every admitted turn."""
        self._listeners.append(listener)

    def exposition(self) -> Exposition:
        """Return every metric in Prometheus' text form."""
        return Exposition(body=generate_latest(self._registry))

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Time one judgement."""
        start = self._timer()
        yield
        self._turn_seconds.observe(self._timer() - start)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request as under way."""
        with self._in_flight.track_inprogress():
            yield

    def requested(self, route: str, status: int) -> None:
        """Count a finished request; `route` is a template, never a path with ids in it."""
        self._requests.labels(route=route, status=str(status)).inc()

    def turn(self, result: TurnResult) -> None:
        """Count a judged turn and add its verdict to the current span."""
        self._turns.labels(action=result.verdict.action.value).inc()
        if not is_judged(result.verdict):
            self._unjudged.inc()
            return
        span = trace.get_current_span()
        if span.is_recording():
            span.add_event("gen_ai.evaluation.result", span_attributes(result.verdict))

    def admitted(self, result: TurnResult, *, history: str, key: str) -> None:
        """Count how the resent history compared, and log one line for the turn."""
        self._history.labels(kind=history).inc()
        level = logging.WARNING if result.is_blocked or result.verdict.fault else logging.INFO
        if LOGGER.isEnabledFor(level):
            fields = {**log_fields(result), "history": history, "key": key}
            LOGGER.log(level, "turn", extra={"fields": fields})
        for listener in self._listeners:
            listener(result)

    @contextmanager
    def turn_span(self, operation: str, *, model: str, provider: str) -> Iterator[trace.Span]:
        """Trace the judgement of one turn, and note what its request asks of the upstream."""
        call = current_call()
        call.operation, call.model, call.provider = operation, model, provider
        with self.tracing.guard(model=model) as span:
            if provider:
                span.set_attribute("gen_ai.provider.name", provider)
            yield span

    def reply_cut(self) -> None:
        """Count a reply that was cut, or in detect mode would have been."""
        self._cut.inc()

    @contextmanager
    def calling_upstream(self) -> Iterator[None]:
        """Time one call to the upstream; calls that fail are counted, not timed."""
        start = self._timer()
        yield
        self._upstream_seconds.observe(self._timer() - start)

    def upstream_error(self, kind: str) -> None:
        """Count a failure of the upstream."""
        self._upstream_errors.labels(kind=kind).inc()

    def webhook(self, outcome: str) -> None:
        """Count an event that was delivered or lost."""
        self._webhooks.labels(outcome=outcome).inc()

    def reloaded(self, outcome: str) -> None:
        """Count a reload."""
        self._reloads.labels(outcome=outcome).inc()

    def redacted(self, entries: int) -> None:
        """Count what retention dropped."""
        self._redacted.inc(entries)


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
            self._append(path, "")

    @contextmanager
    def action(
        self,
        actor: str,
        action: str,
        target: str,
        *,
        done: str = "done",
        tenant: str = "default",
    ) -> Iterator[None]:
        """Record an action before the block does it, and its outcome after it.

        Raises ConfigError where the first record cannot be written, so that nothing is done
        without a trace. `done` is the outcome of a block that does not raise. `on_label` is
        told of labels, with session, tenant and outcome.
        """
        self.record(actor, action, target, "begun", tenant=tenant)
        try:
            yield
        except Exception as error:
            self._record_outcome(actor, action, target, type(error).__name__, tenant)
            raise
        self._record_outcome(actor, action, target, done, tenant)
        if action == "label" and self._on_label is not None:
            self._on_label(target, tenant, done)

    def record(
        self, actor: str, action: str, target: str, outcome: str, *, tenant: str = "default"
    ) -> None:
        """Record that `actor` did `action` to `target`, which is of `tenant`."""
        fields = {
            "actor": actor or "local",
            "action": action,
            "target": target,
            "tenant": tenant,
            "outcome": outcome,
        }
        AUDIT.log(logging.INFO, "audit", extra={"fields": fields})
        if self._path is not None:
            at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
            self._append(self._path, json.dumps({"time": at, **fields}) + "\n")

    def _record_outcome(
        self, actor: str, action: str, target: str, outcome: str, tenant: str
    ) -> None:
        try:
            self.record(actor, action, target, outcome, tenant=tenant)
        except ConfigError as error:
            # The action cannot be undone, and its beginning is on record.
            log(logging.ERROR, "audit outcome not recorded", error=error)

    def _append(self, path: str, line: str) -> None:
        try:
            file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)
        except OSError as error:
            raise ConfigError(
                f"The audit file {path} cannot be written: {error.strerror}."
            ) from None


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
