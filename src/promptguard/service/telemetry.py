"""What is counted, timed and traced: Prometheus metrics and OpenTelemetry spans, never text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry import trace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from promptguard.controller import TurnResult

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_LONG_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposition:
    """The metrics as Prometheus reads them."""

    body: bytes
    content_type: str = CONTENT_TYPE_LATEST


class Telemetry:
    """One service's numbers, in a registry of its own."""

    def __init__(
        self,
        *,
        tracer: trace.Tracer | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._tracer = tracer or trace.get_tracer("promptguard")
        self._timer = timer
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
        """Count a judged turn and note its verdict on the current span."""
        self._turns.labels(action=result.action.value).inc()
        if result.verdict is None:
            self._unjudged.inc()
            return
        verdict = result.verdict
        trace.get_current_span().add_event(
            "gen_ai.evaluation.result",
            {
                "gen_ai.evaluation.name": "promptguard.conversation_risk",
                "gen_ai.evaluation.score.value": verdict.risk,
                "gen_ai.evaluation.score.label": verdict.mode.name,
                "gen_ai.evaluation.explanation": ", ".join(
                    entry.signal for entry in verdict.top_evidence
                ),
                "promptguard.action": verdict.action.value,
                "promptguard.tags": list(verdict.tags),
            },
        )

    @contextmanager
    def turn_span(self, operation: str, *, model: str, provider: str) -> Iterator[trace.Span]:
        """Trace one turn, named as the conventions for generative AI have it."""
        with self._tracer.start_as_current_span(f"{operation} {model}".strip()) as span:
            span.set_attribute("gen_ai.operation.name", operation)
            if model:
                span.set_attribute("gen_ai.request.model", model)
            if provider:
                span.set_attribute("gen_ai.provider.name", provider)
            yield span

    def history(self, kind: str) -> None:
        """Count how a resent history compared."""
        self._history.labels(kind=kind).inc()

    def reply_cut(self) -> None:
        """Count a reply that was cut, or in detect mode would have been."""
        self._cut.inc()

    @contextmanager
    def calling_upstream(self) -> Iterator[None]:
        """Time one call to the upstream, where it answers."""
        start = self._timer()
        yield
        self._upstream_seconds.observe(self._timer() - start)

    def upstream_error(self, kind: str) -> None:
        """Count a failure of the upstream."""
        self._upstream_errors.labels(kind=kind).inc()

    def reloaded(self, outcome: str) -> None:
        """Count a reload."""
        self._reloads.labels(outcome=outcome).inc()

    def redacted(self, entries: int) -> None:
        """Count what retention dropped."""
        self._redacted.inc(entries)
