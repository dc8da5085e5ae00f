"""Traces across client, web process, broker, worker, provider and egress, by OpenTelemetry if a collector is named.

OpenTelemetry is imported only if `start_tracing` finds OTEL_EXPORTER_OTLP_ENDPOINT (or the variable for traces
only). Without tracing a span costs one function call. Spans are created at requests, jobs, provider attempts and
egress. Their attributes are routes, kinds, providers, hosts and codes: no prompt, key, file name, path or query.
"""

import os
import re

from shared.observability.spans import NO_SPAN, Attribute, Span, SpanKind, Tracer
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# The list has at most one tracer. It is a list, so that `start_tracing` needs no `global`.
_tracers: list[Tracer] = []


def start_tracing(role: str) -> None:
    """Trace this process if a collector is named. Call once in the working process: a fork loses the exporter."""
    if _tracers or not any(os.environ.get(name) for name in ENDPOINTS):
        return
    try:
        # Import the SDK here, because it costs memory and start-up time and only tracing needs it.
        from shared.observability.opentelemetry_export import open_tracer
    except ImportError:
        log.warning("tracing.not_installed", remedy="pip install 'quartermaster[tracing]'")
        return
    _tracers.append(open_tracer(role))


def span(name: str, kind: SpanKind, *, parent: str | None = None, **attributes: Attribute) -> Span:
    """Start a span below a valid `parent`, else below the current span. Return NO_SPAN if tracing is off.

    Two underscores in an attribute's name stand for a dot.
    """
    if not _tracers:
        return NO_SPAN
    # Replace two underscores by a dot, because keyword arguments cannot contain dots.
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    return _tracers[0].span(name, kind, parent if trace_id(parent) else None, named)


def continued(name: str, parent: str | None, **attributes: Attribute) -> Span:
    """Start the span of a message's work. Return NO_SPAN if no traced request sent the message."""
    return span(name, "consumer", parent=parent, **attributes) if parent is not None else NO_SPAN


def traceparent() -> str | None:
    """Return the current trace context for a message or request; None if tracing is off."""
    return _tracers[0].traceparent() if _tracers else None


def trace_id(of: str | None) -> str | None:
    """Return the trace id of a `traceparent`; None if it is invalid."""
    match = _TRACEPARENT.fullmatch(of or "")
    return match[1] if match else None
