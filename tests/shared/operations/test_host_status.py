"""A host's state: its processes and sweeps by its metrics, and the broker's queue depths."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge

from deploy.embedded.valkey import EmbeddedValkey
from shared.messaging.queues import QUEUES
from shared.observability.multiprocess_metrics import HostMetrics
from shared.operations.host_status import SweepState, measure_queues, read_host_state
from tests.support.data.identity import make_settings


def test_processes_and_sweeps_are_read_from_what_the_host_has_written(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    Gauge("quartermaster_sweep_interval_seconds", "x", ["kind"], registry=registry).labels(
        "files.expire"
    ).set(5)
    succeeded = Gauge("quartermaster_job_last_success_timestamp_seconds", "x", ["kind"], registry=registry)
    succeeded.labels("files.expire").set(1_800_000_000)
    failed = Counter("quartermaster_jobs_total", "x", ["kind", "outcome"], registry=registry)
    failed.labels("files.expire", "failed").inc(3)
    HostMetrics(tmp_path, "worker-background", registry=registry).write()
    state = read_host_state(make_settings(metrics_directory=tmp_path))
    assert state.processes == {"worker-background": 1}
    (sweep,) = state.sweeps
    assert sweep == SweepState(
        kind="files.expire",
        every_seconds=5,
        succeeded_at=datetime.fromtimestamp(1_800_000_000, UTC),
        failures=3,
    )
    assert not sweep.is_overdue(datetime.fromtimestamp(1_800_000_030, UTC))
    assert sweep.is_overdue(datetime.fromtimestamp(1_800_000_061, UTC))


def test_a_sweep_that_never_ended_well_here_is_another_hosts() -> None:
    sweep = SweepState(kind="x", every_seconds=1, succeeded_at=None, failures=0)
    assert not sweep.is_overdue(datetime.now(UTC) + timedelta(days=1))


def test_without_a_directory_nothing_is_known_of_a_host() -> None:
    state = read_host_state(make_settings(metrics_directory=None))
    assert (state.processes, state.sweeps) == ({}, ())


def test_queues_are_counted_while_the_broker_answers(valkey_server: EmbeddedValkey) -> None:
    assert set(measure_queues(make_settings(redis_url=valkey_server.url)) or {}) == set(QUEUES)
    assert measure_queues(make_settings(redis_url="redis://127.0.0.1:9/0")) is None
