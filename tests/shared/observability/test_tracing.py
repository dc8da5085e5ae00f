"""Traces cost nothing until a collector is named, and no start where OpenTelemetry is missing."""

import json
import subprocess
import sys

import pytest

from shared.observability.spans import NO_SPAN
from shared.observability.tracing import continued, span, start_tracing, trace_id, traceparent

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_collector_nothing_of_opentelemetry_is_imported_and_nothing_is_traced() -> None:
    start_tracing("web")
    assert span("a", "client") is NO_SPAN
    assert continued("a", TRACE) is NO_SPAN
    assert traceparent() is None
    code = (
        # The Valkey client looks for OpenTelemetry's metrics by itself, where that is installed.
        "import sys; from web import app; from workers import handling; "
        "from shared.observability.tracing import start_tracing;"
        "start_tracing('web'); "
        "print({'shared.observability.opentelemetry_export', 'opentelemetry.sdk.trace'} & sys.modules.keys())"
    )
    assert run(code).strip() == "set()"


def test_process_starts_without_the_tracing_extra_and_logs_the_remedy() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None;"
        "from shared.runtime.log_writer import configure_logging; configure_logging('INFO');"
        "from shared.observability.tracing import span, start_tracing; start_tracing('web'); print(span('a', 'client'))"
    )
    said = run(code, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    line = next(json.loads(line) for line in said.splitlines() if line.startswith("{"))
    assert (line["event"], line["remedy"]) == (
        "tracing.not_installed",
        "pip install 'quartermaster[tracing]'",
    )


@pytest.mark.parametrize(
    "header",
    [None, "", "00-x", "ff" + TRACE[2:], TRACE.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32)],
)
def test_a_trace_that_is_none_has_no_id(header: str | None) -> None:
    assert trace_id(header) is None
    assert trace_id(TRACE) == "0af7651916cd43dd8448eb211c80319c"
