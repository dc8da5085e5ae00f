"""Probes are answered whatever hangs, and metrics whatever is away."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric

from deploy.embedded.ports import find_free_port
from deploy.embedded.valkey import EmbeddedValkey
from shared.observability.multiprocess_metrics import HostMetrics
from shared.observability.telemetry import UPLOADED_BYTES
from shared.operations import health_checks
from shared.operations.health_checks import HealthChecks
from tests.support.web.web_process import open_front


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """Something that checks wait for until the test is over."""
    ended = threading.Event()
    yield ended
    ended.set()


def test_a_check_that_hangs_has_failed_and_holds_up_no_other(
    hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_checks, "CHECK_SECONDS", 1.0)
    monkeypatch.setattr(health_checks, "READINESS_CACHE_SECONDS", 0.0)
    asked: list[str] = []

    def hang() -> None:
        asked.append("store")
        hanging.wait()

    answering = HealthChecks({"store": hang, "database": lambda: None}, HostMetrics(None, "web"))
    for _ in range(3):
        assert answering.readiness() == {"store": "unavailable", "database": "ok"}
    assert asked == ["store"], "one thread hangs, not one for each probe"
    hanging.set()
    deadline = time.monotonic() + 60
    while answering.readiness()["store"] != "ok":
        assert time.monotonic() < deadline


def test_metrics_come_without_what_cannot_be_measured(
    hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_checks, "MEASURE_SECONDS", 0.5)

    def hang() -> list[Metric]:
        hanging.wait()
        return [GaugeMetricFamily("quartermaster_lost", "Never told.", value=1)]

    def measure(state: str, rows: int) -> list[Metric]:
        family = GaugeMetricFamily("quartermaster_rows", "Rows.", labels=["state"])
        family.add_metric([state], rows)
        return [family]

    measures = {"hangs": hang, "a": lambda: measure("a", 1), "b": lambda: measure("b", 2)}
    text = HealthChecks({}, HostMetrics(None, "web"), measures).metrics().decode()
    assert "quartermaster_uploaded_bytes_total" in text
    assert "quartermaster_lost" not in text
    assert 'quartermaster_rows{state="a"} 1.0\nquartermaster_rows{state="b"} 2.0' in text
    assert 'quartermaster_measurement_success{measurement="hangs"} 0.0' in text
    assert 'quartermaster_measurement_success{measurement="a"} 1.0' in text


def test_metrics_come_while_the_database_is_away(valkey_server: EmbeddedValkey, tmp_path: Path) -> None:
    nowhere = f"postgresql://nobody@127.0.0.1:{find_free_port()}/none"
    UPLOADED_BYTES.inc(0)
    with open_front(nowhere, valkey_server.url, tmp_path) as front:
        answer = front.get("/metrics")
        assert (answer.status_code, "quartermaster_uploaded_bytes_total" in answer.text) == (200, True)
        ready = front.get("/readyz")
        assert (ready.status_code, ready.json and ready.json["checks"]["database"]) == (503, "unavailable")
