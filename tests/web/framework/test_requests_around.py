"""What every request has: an id, a trace, a host check, metrics, and responses for unknown operations."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from deploy.embedded.valkey import EmbeddedValkey
from shared.observability.telemetry import JsonFormatter
from shared.operations.health_checks import HealthChecks
from tests.support.files.file_requests import refuse
from tests.support.web.web_process import Front, open_front


class Lines(logging.Handler):
    """Collects the log lines of the process."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonFormatter())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@pytest.fixture
def lines(front: Front) -> Iterator[list[dict[str, Any]]]:
    handler = Lines()
    logging.getLogger().addHandler(handler)
    yield handler.lines
    logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("sent", ["a", "order-17_b.c", "A" * 64, "0"])
def test_valid_request_id_is_kept(front: Front, lines: list[dict[str, Any]], sent: str) -> None:
    answer = front.get("/files", headers={"X-Request-Id": sent})
    assert answer.headers.getlist("X-Request-Id") == [sent]
    assert refuse(answer, 401, "authentication_required")["requestId"] == sent
    assert lines[-1]["request_id"] == sent


@pytest.mark.parametrize("sent", ["", " ", "a b", "A" * 65, "a\u00e9", "a;b", "<x>", "a,b"])
def test_any_other_request_id_is_replaced(front: Front, sent: str) -> None:
    answer = front.get("/healthz", headers={"X-Request-Id": sent})
    assert answer.headers["X-Request-Id"] != sent
    assert len(answer.headers["X-Request-Id"]) == 32


def test_every_request_without_an_id_gets_its_own(front: Front) -> None:
    ids = {front.get(path).headers["X-Request-Id"] for path in ("/healthz", "/healthz", "/nowhere", "/files")}
    assert len(ids) == 4


TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    ("sent", "logged"),
    [
        (f"00-{TRACE}-b7ad6b7169203331-01", TRACE),
        (f"00-{TRACE.upper()}-b7ad6b7169203331-01", None),
        (f"ff-{TRACE}-b7ad6b7169203331-01", None),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE}-b7ad6b7169203331", None),
        ("anything", None),
    ],
)
def test_a_sound_traceparent_is_followed(
    front: Front, lines: list[dict[str, Any]], sent: str, logged: str | None
) -> None:
    front.get("/problems/file_not_found", headers={"traceparent": sent})
    assert lines[-1]["trace_id"] == logged


def test_each_request_is_logged_in_one_line(front: Front, lines: list[dict[str, Any]]) -> None:
    front.get("/problems/file_not_found?x=1", headers={"X-Request-Id": "r-1"})
    (line,) = lines
    assert {name: line[name] for name in ("event", "method", "route", "path", "status", "request_id")} == {
        "event": "request.answered",
        "method": "GET",
        "route": "/problems/<code>",
        "path": "/problems/file_not_found",
        "status": 400,
        "request_id": "r-1",
    }


def test_no_line_of_one_request_carries_the_id_of_another(front: Front, lines: list[dict[str, Any]]) -> None:
    front.get("/problems/file_not_found", headers={"X-Request-Id": "r-1"})
    logging.getLogger("elsewhere").warning("between")
    front.get("/problems/file_not_found", headers={"X-Request-Id": "r-2"})
    assert [line.get("request_id") for line in lines] == ["r-1", None, "r-2"]


def test_successful_probe_is_not_logged(
    front: Front, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HealthChecks, "readiness", lambda _: {"database": "ok"})
    for path in ("/healthz", "/readyz", "/metrics"):
        assert front.get(path).status_code == 200
    monkeypatch.setattr(HealthChecks, "readiness", lambda _: {"database": "unavailable"})
    assert front.get("/readyz").status_code == 503
    answered = [(line["path"], line["status"]) for line in lines if line["event"] == "request.answered"]
    assert answered == [("/readyz", 503)]


def test_an_unknown_method_makes_no_metric_of_its_own(front: Front) -> None:
    answer = front.ask("BREW17", "/files")
    refuse(answer, 405, "method_not_allowed")
    assert set(answer.headers["Allow"].split(", ")) >= {"GET", "HEAD"}
    metrics = generate_latest().decode()
    assert "BREW17" not in metrics
    assert 'method="other"' in metrics


@pytest.mark.parametrize(
    "path",
    [
        "/FILES",
        "/files/not-an-id",
        "/files/{01890000-0000-7000-8000-000000000000}",
        "/files/0189000000007000800000000000000000",
        "/files/urn:uuid:01890000-0000-7000-8000-000000000000",
        "/files/01890000-0000-7000-8000-000000000000%0A",
        "/files/01890000-0000-7000-8000-00000000000\u0660",
        "/files/..%2f..%2fetc%2fpasswd",
        "/files/%00",
        "/files/01890000-0000-7000-8000-000000000000;x=1",
        "/files/01890000-0000-7000-8000-000000000000/versions/x/grants",
        "/problems/no_such_problem",
        "/docs/no_such_asset",
    ],
)
def test_unknown_path_is_not_found(front: Front, path: str) -> None:
    deployment = front.identity.deployment(front.identity.organization().id)
    refuse(front.get(path, front.identity.authorization(deployment)), 404, "not_found")


@pytest.mark.parametrize(("path", "status"), [("/", 405), ("//files", 404)])
def test_the_base_of_the_default_agent_refuses_as_agents_do(front: Front, path: str, status: int) -> None:
    answer = front.put(path)
    error = answer.get_json()["error"]
    assert (answer.status_code, error["code"]) == (status, status)
    assert error["details"][0]["reason"] == "METHOD_NOT_FOUND"


def test_ids_in_capitals_name_the_same_file(front: Front) -> None:
    deployment = front.identity.deployment(front.identity.organization().id)
    path = "/files/01890000-0000-7000-8000-ABCDEFABCDEF"
    refuse(front.get(path, front.identity.authorization(deployment)), 404, "file_not_found")


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "gopher", "X-Forwarded-For": "10.0.0.1"},
        {"Forwarded": "for=10.0.0.1;host=evil.example;proto=https"},
        {"X-User-Id": "00000000-0000-0000-0000-000000000001", "X-Original-URL": "/healthz"},
        {"X-HTTP-Method-Override": "DELETE"},
    ],
)
def test_forwarded_headers_of_an_untrusted_client_are_ignored(front: Front, headers: dict[str, str]) -> None:
    plain, forwarded = front.get("/files"), front.get("/files", headers=headers)
    refuse(forwarded, 401, "authentication_required")
    for answer in (plain, forwarded):
        assert (answer.json or {})["type"] == "http://localhost/problems/authentication_required"
    assert "evil" not in forwarded.text + str(forwarded.headers)


def test_only_the_listed_hosts_are_served(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path: Path
) -> None:
    with open_front(
        database_url, valkey_server.url, tmp_path, allowed_hosts="qm.example, www.qm.example"
    ) as front:
        for host in ("qm.example", "QM.example:8443", "www.qm.example"):
            refuse(front.get("/files", headers={"Host": host}), 401, "authentication_required")
        for host in ("evil.example", "qm.example.evil", "qm.example@evil", "10.0.0.7", ""):
            refuse(front.get("/files", headers={"Host": host}), 400, "malformed_request")
        assert front.get("/healthz", headers={"Host": "10.0.0.7:8080"}).status_code == 200


def test_unexpected_error_is_a_500_without_details(
    front: Front, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str | None) -> None:
        raise RuntimeError("the secret inner detail")

    monkeypatch.setattr(front.services.authenticator, "authenticate", fail)
    answer = front.get("/files", "Bearer x", headers={"X-Request-Id": "r-500"})
    refuse(answer, 500, "internal_error")
    assert "secret inner detail" not in answer.text
    failed = next(line for line in lines if line["event"] == "request.failed")
    assert failed["request_id"] == "r-500"
    assert "the secret inner detail" in failed["exception"]


def test_health_reports_liveness_and_readiness_reports_dependencies(front: Front) -> None:
    assert front.get("/healthz").json == {"status": "ok"}
    ready = front.get("/readyz")
    assert (ready.status_code, ready.json) == (
        200,
        {"status": "ok", "checks": {"database": "ok", "broker": "ok", "blobs": "ok"}},
    )
    metrics = front.get("/metrics")
    assert metrics.status_code == 200
    for state in ("staged", "turns", "model_calls"):
        assert f'quartermaster_backlog{{state="{state}"}}' in metrics.text
