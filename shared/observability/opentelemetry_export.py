"""The OpenTelemetry implementation of `tracing`; the only module that imports the SDK. Imported only with tracing.

Endpoint, headers, sampler and resource come from the SDK's own variables (`OTEL_…`). The SDK's default sampler
follows the caller's decision and keeps every trace that starts in this service. Spans are sent from a thread; spans
that the collector does not accept are dropped.
"""

import os
from contextvars import Token
from typing import Self

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from shared.errors import DomainError
from shared.observability.spans import Attribute, Span, SpanKind, Tracer

_KINDS = {
    "server": trace.SpanKind.SERVER,
    "consumer": trace.SpanKind.CONSUMER,
    "client": trace.SpanKind.CLIENT,
}
_UNNAMED = "unknown_service"
SERVICE = "quartermaster"
EXPORT_SECONDS = 3.0
"""How long the exporter retries a collector that does not respond; the end of the process waits as long."""


def open_tracer(role: str) -> Tracer:
    """Return a tracer that sends this process's spans to the collector that the environment names."""
    resource = Resource.create({"quartermaster.role": role})
    # The SDK's default name is `unknown_service:…`; OTEL_SERVICE_NAME takes precedence.
    if str(resource.attributes.get(SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED):
        resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
    provider = TracerProvider(resource=resource)
    timeout_seconds = float(os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT") or EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=timeout_seconds)))
    return _Tracer(provider.get_tracer(SERVICE))


class _Tracer:
    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def span(self, name: str, kind: SpanKind, parent: str | None, attributes: dict[str, Attribute]) -> Span:
        """Start a span. Only `fail` records details of an exception."""
        above = _read(parent) if parent is not None else None
        made = self._tracer.start_span(
            name,
            above,
            kind=_KINDS[kind],
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        )
        return _Span(made)

    def traceparent(self) -> str | None:
        """Return the current context as a `traceparent`; None without a current span."""
        at = trace.get_current_span().get_span_context()
        return f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags:02x}" if at.is_valid else None


def _read(traceparent: str) -> Context:
    """Parse a valid `traceparent`; the SDK's propagator takes five times as long."""
    _, trace_id, span_id, flags = traceparent.split("-")
    at = trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16)))  # noqa: FBT003
    return trace.set_span_in_context(trace.NonRecordingSpan(at), Context())


class _Span:
    __slots__ = ("_span", "_token")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._token: Token[Context] | None = None

    def enter(self) -> None:
        """Make the span the current one."""
        self._token = context.attach(trace.set_span_in_context(self._span))

    def leave(self) -> None:
        """Restore the span that was current before."""
        if self._token is not None:
            context.detach(self._token)
            self._token = None

    def set(self, name: str, value: Attribute) -> None:
        """Set an attribute."""
        self._span.set_attribute(name, value)

    def fail(self, code: str) -> None:
        """Record the error's code and mark the span as failed."""
        self._span.set_attribute("error.type", code)
        self._span.set_status(trace.StatusCode.ERROR)

    def end(self) -> None:
        """Send the span to the collector; a second call does nothing."""
        if self._span.is_recording():
            self._span.end()

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: object) -> None:
        self.leave()
        # GeneratorExit is how a closed generator ends, and no failure.
        if error is not None and not isinstance(error, GeneratorExit):
            self.fail(error.code if isinstance(error, DomainError) else type(error).__name__)
        self.end()
