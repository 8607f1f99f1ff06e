"""Metrics, and traces by OpenTelemetry's conventions. Neither ever holds message text.

Request, guard and upstream call each have a span. The request's span continues the client's
trace; the guard's lies inside it, and so does the call to the upstream, whose own trace goes on
from there. Spans hold no words of exceptions either, which might quote some text.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from urllib.parse import urlsplit

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from promptguard import __version__
from promptguard.errors import ConfigError
from promptguard.service.errors import ApiError
from promptguard.service.lanes import current_call
from promptguard.service.logs import LOGGER
from promptguard.service.verdicts import is_judged, log_fields, span_attributes
from promptguard.turns.result import TurnResult

NAME = "promptguard"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_OPERATIONS = {
    "/chat/completions": "chat",
    "/responses": "chat",
    "/messages": "chat",
    "/completions": "text_completion",
    "/embeddings": "embeddings",
}
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_LONG_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Tracing:
    """Starts the spans of one service; without an SDK they cost next to nothing."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer(NAME)

    def request(self, scope: Scope) -> AbstractContextManager[Span]:
        """Trace a request, as part of the client's trace where it sends one."""
        method = scope["method"]
        attributes = {"http.request.method": method, "url.scheme": scope.get("scheme", "http")}
        return self._tracer.start_as_current_span(
            method,
            context=propagate.extract(Headers(scope=scope)),
            kind=SpanKind.SERVER,
            attributes=attributes,
            # Exceptions may quote what was sent, and spans leave the machine.
            record_exception=False,
            set_status_on_exception=False,
        )

    @contextmanager
    def guard(self, *, model: str, provider: str) -> Iterator[Span]:
        """Trace the judgement of one turn inside the request under way."""
        with self._tracer.start_as_current_span(
            "guard", record_exception=False, set_status_on_exception=False
        ) as span:
            span.set_attribute("gen_ai.operation.name", "guard")
            if model:
                span.set_attribute("gen_ai.request.model", model)
            if provider:
                span.set_attribute("gen_ai.provider.name", provider)
            try:
                yield span
            except BaseException as error:
                fail(span, type(error).__name__)
                raise

    @contextmanager
    def upstream(
        self, method: str, path: str, *, provider: str, base_url: str, model: str
    ) -> Iterator[Span]:
        """Trace a call to the upstream.

        Its span is not made the current one: a stream ends in another task than it began in.
        """
        operation = _OPERATIONS.get(path) if method == "POST" else None
        where = urlsplit(base_url)
        attributes: dict[str, str | int] = {
            "gen_ai.provider.name": provider,
            "server.address": where.hostname or "",
            "server.port": where.port or (443 if where.scheme == "https" else 80),
        }
        if operation is not None:
            attributes["gen_ai.operation.name"] = operation
            if model:
                attributes["gen_ai.request.model"] = model
        name = f"{operation} {model}".strip() if operation else method
        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)
        try:
            yield span
        except BaseException as error:
            fail(span, error.code if isinstance(error, ApiError) else type(error).__name__)
            raise
        finally:
            span.end()


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
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self._turns = counter("promptguard_turns", "Turns judged, by action", ["action"])
        self._unjudged = counter("promptguard_turns_unjudged", "Turns no judge could judge")
        self._turn_seconds = histogram(
            "promptguard_turn_seconds", "Time to judge and record a turn", buckets=_SECONDS
        )
        self._history = counter("promptguard_histories", "Resent histories, by kind", ["kind"])
        self._cut = counter("promptguard_replies_cut", "Replies of the model cut short")
        self._upstream_errors = counter(
            "promptguard_upstream_errors", "Upstream failures, by kind", ["kind"]
        )
        self._upstream_seconds = histogram(
            "promptguard_upstream_seconds",
            "Time until the upstream's headers (streams) or whole answer",
            buckets=_LONG_SECONDS,
        )
        self._requests = counter(
            "promptguard_requests", "Requests, by route and status", ["route", "status"]
        )
        self._in_flight = Gauge(
            "promptguard_requests_in_flight", "Requests under way", registry=registry
        )
        self._reloads = counter("promptguard_reloads", "Reloads of the settings", ["outcome"])
        self._redacted = counter(
            "promptguard_entries_redacted", "Stored texts dropped by retention"
        )
        self._webhooks = counter("promptguard_webhooks", "Webhook events, by outcome", ["outcome"])

    def on_turn(self, listener: TurnListener) -> None:
        """Call `listener` with every admitted turn."""
        self._listeners.append(listener)

    def exposition(self) -> Response:
        """Return every metric in Prometheus' text form."""
        return Response(
            generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_LATEST}
        )

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Time one judgement."""
        start = self._timer()
        yield
        self._turn_seconds.observe(self._timer() - start)

    def request(self) -> AbstractContextManager[None]:
        """Count a request as under way."""
        return self._in_flight.track_inprogress()

    def requested(self, route: str, status: int) -> None:
        """Count a finished request; `route` is a template, never a path with ids in it."""
        self._requests.labels(route=route, status=str(status)).inc()

    def turn(self, result: TurnResult) -> None:
        """Count a judged turn and add its verdict to the current span."""
        self._turns.labels(action=result.verdict.action.value).inc()
        # Without a judgement there is no score, and none must look like a safe one.
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
        # Fields are put together only where somebody reads them.
        if LOGGER.isEnabledFor(level):
            fields = {**log_fields(result), "history": history, "key": key}
            LOGGER.log(level, "turn", extra={"fields": fields})
        for listener in self._listeners:
            listener(result)

    def turn_span(
        self, _operation: str = "", *, model: str, provider: str
    ) -> AbstractContextManager[Span]:
        """Trace the judgement of one turn, and note which model its request asks for."""
        current_call().model = model
        return self.tracing.guard(model=model, provider=provider)

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


def finish_request(span: Span, route: str, status: int) -> None:
    """Name a request's span by its route, and mark it as failed where the service failed."""
    span.set_attribute("http.route", route)
    if status:
        span.set_attribute("http.response.status_code", status)
    if status >= 500:
        fail(span, str(status))


def fail(span: Span, kind: str) -> None:
    """Mark a span as failed."""
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def inject(span: Span, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with the trace context of `span` in place of the client's."""
    carrier: MutableMapping[str, str] = {}
    propagate.inject(carrier, context=trace.set_span_in_context(span))
    # The client's own traceparent is replaced: the upstream's parent is our call.
    return {**headers, **carrier}


def note_answer(span: Span, content: bytes) -> None:
    """Add to an upstream's span what its answer says of model, tokens and ends."""
    # Parsing an answer once more is for traces alone.
    if not span.is_recording():
        return
    # A trace must not fail over what the upstream sent; whether it is an answer is checked later.
    with suppress(ValueError, TypeError, AttributeError, RecursionError):
        body = json.loads(content)
        usage = body.get("usage") or {}
        reasons = [str(choice.get("finish_reason")) for choice in body.get("choices") or ()]
        found = {
            "gen_ai.response.id": body.get("id"),
            "gen_ai.response.model": body.get("model"),
            "gen_ai.usage.input_tokens": usage.get("prompt_tokens"),
            "gen_ai.usage.output_tokens": usage.get("completion_tokens"),
            "gen_ai.response.finish_reasons": reasons or None,
        }
        for name, value in found.items():
            if isinstance(value, str | int | list):
                span.set_attribute(name, value)


def set_up_traces(env: Mapping[str, str] | None = None) -> bool:
    """Export spans where the usual variables name an OTLP endpoint; return whether they do.

    Needs the extra `otel`. An application that has set up the SDK itself is left alone.
    """
    env = os.environ if env is None else env
    if not (env.get(ENDPOINT) or env.get(TRACES_ENDPOINT)):
        return False
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ConfigError(
            f"{ENDPOINT} is set, and to export traces needs the extra `otel`: "
            "pip install 'ayniguard[otel]'."
        ) from None
    resource = Resource.create({"service.name": NAME, "service.version": __version__})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True
