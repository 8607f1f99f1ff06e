"""Traces by OpenTelemetry's conventions: request, guard and upstream call each have a span.

The request's span continues the client's trace; the guard's lies inside it, and so does the call
to the upstream, whose own trace goes on from there. Spans hold no message text, and no words of
exceptions, which might quote some.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from starlette.datastructures import Headers
from starlette.types import Scope

from promptguard import __version__
from promptguard.errors import ConfigError

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


class Tracing:
    """Starts the spans of one service; without an SDK they cost next to nothing."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer(NAME)

    @contextmanager
    def request(self, scope: Scope) -> Iterator[Span]:
        """Trace a request, as part of the client's trace where it sends one."""
        method = scope["method"]
        attributes = {"http.request.method": method, "url.scheme": scope.get("scheme", "http")}
        with self._tracer.start_as_current_span(
            method,
            context=propagate.extract(Headers(scope=scope)),
            kind=SpanKind.SERVER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield span

    @contextmanager
    def guard(self, *, model: str) -> Iterator[Span]:
        """Trace the judgement of one turn inside the request under way."""
        with self._tracer.start_as_current_span(
            "guard", record_exception=False, set_status_on_exception=False
        ) as span:
            span.set_attribute("gen_ai.operation.name", "guard")
            if model:
                span.set_attribute("gen_ai.request.model", model)
            try:
                yield span
            except BaseException as error:
                fail(span, type(error).__name__)
                raise

    def upstream(self, method: str, path: str, *, provider: str, base_url: str, model: str) -> Span:
        """Start the span of a call to the upstream; whoever starts it ends it.

        It is not made the current one: a stream ends in another task than it began in.
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
        return self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)


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
    return {**headers, **carrier}


def note_answer(span: Span, content: bytes) -> None:
    """Add to an upstream's span what its answer says of model, tokens and ends."""
    if not span.is_recording():
        return
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
