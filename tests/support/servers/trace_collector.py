"""A collector of traces that accepts OTLP over HTTP and keeps what it receives."""

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.servers.local_servers import LocalServer


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanSeen:
    """An exported span."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    role: str
    attributes: dict[str, str]
    has_failed: bool


class Collector(LocalServer):
    """The endpoint to which the processes of a test send their spans."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._spans: list[SpanSeen] = []
        self._bodies: list[bytes] = []

    @property
    def received(self) -> bytes:
        """Return all bytes received, unparsed."""
        with self._lock:
            return b"".join(self._bodies)

    def trace(self, trace_id: str) -> list[SpanSeen]:
        """Return the spans of a trace received so far."""
        with self._lock:
            return [span for span in self._spans if span.trace_id == trace_id]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        assert handler.path == "/v1/traces"
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        spans = [*_spans(ExportTraceServiceRequest.FromString(body))]
        with self._lock:
            self._bodies.append(body)
            self._spans += spans
        answer = ExportTraceServiceResponse().SerializeToString()
        handler.send_response(200)
        handler.send_header("Content-Type", "application/x-protobuf")
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)


def _spans(request: ExportTraceServiceRequest) -> list[SpanSeen]:
    return [
        SpanSeen(
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            name=span.name,
            role=_attributes(of.resource.attributes)["quartermaster.role"],
            attributes=_attributes(span.attributes),
            has_failed=span.status.code == span.status.STATUS_CODE_ERROR,
        )
        for of in request.resource_spans
        for scope in of.scope_spans
        for span in scope.spans
    ]


def _attributes(given: object) -> dict[str, str]:
    return {
        at.key: at.value.string_value or str(at.value.int_value)
        for at in given  # type: ignore[attr-defined]
    }
