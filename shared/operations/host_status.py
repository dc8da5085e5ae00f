"""The state of a host and the broker: processes by type, queue depths, and when each sweep last succeeded."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from shared.config.settings import Settings
from shared.errors import ServiceUnavailable
from shared.messaging.broker import Broker
from shared.messaging.queues import QUEUES
from shared.observability.multiprocess_metrics import HostMetrics

LATE_INTERVALS = 3
LATE_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepState:
    """A sweep: its interval, its last success on this host, and the number of failed runs."""

    kind: str
    every_seconds: float
    succeeded_at: datetime | None
    failures: int

    def is_overdue(self, now: datetime) -> bool:
        """Return whether the sweep should have succeeded by now."""
        if self.succeeded_at is None:
            return False  # another host may run it
        max_delay_seconds = max(LATE_INTERVALS * self.every_seconds, LATE_SECONDS)
        return (now - self.succeeded_at).total_seconds() > max_delay_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """The state of a host according to its metrics; empty without METRICS_DIRECTORY."""

    processes: Mapping[str, int]
    sweeps: Sequence[SweepState]


def read_host_state(settings: Settings) -> HostState:
    """Read the metrics that the processes of this host wrote."""
    if settings.metrics_directory is None:
        return HostState(processes={}, sweeps=())
    # Use a separate registry, because the counters of this command are not part of the host's metrics.
    metrics = HostMetrics(settings.metrics_directory, "command", registry=CollectorRegistry())
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for family in metrics.collect():
        for sample in family.samples:
            if sample.name == _JOBS:
                kind, outcome = sample.labels["kind"], sample.labels["outcome"]
                values[f"{_JOBS} {outcome}"][kind] = sample.value
            elif sample.name in _KEPT:
                values[sample.name][sample.labels[_KEPT[sample.name]]] = sample.value
    processes = {kind: int(count) for kind, count in values[_PROCESSES].items() if kind != "command"}
    return HostState(processes=dict(sorted(processes.items())), sweeps=_sweeps(values))


def measure_queues(settings: Settings) -> Mapping[str, int] | None:
    """Return the number of messages in each queue; None if the broker does not respond."""
    try:
        with closing(Broker.of(settings.broker)) as broker:
            return {queue: broker.depth(queue) for queue in QUEUES}
    except ServiceUnavailable:
        return None


def _sweeps(values: Mapping[str, Mapping[str, float]]) -> Sequence[SweepState]:
    succeeded, failed = values[_SUCCEEDED], values[f"{_JOBS} failed"]
    return [
        SweepState(
            kind=kind,
            every_seconds=every_seconds,
            succeeded_at=datetime.fromtimestamp(succeeded[kind], UTC) if succeeded.get(kind) else None,
            failures=int(failed.get(kind, 0)),
        )
        for kind, every_seconds in sorted(values[_INTERVAL].items())
    ]


_PROCESSES = "quartermaster_processes"
_JOBS = "quartermaster_jobs_total"
_SUCCEEDED = "quartermaster_job_last_success_timestamp_seconds"
_INTERVAL = "quartermaster_sweep_interval_seconds"
_KEPT = {_PROCESSES: "role", _SUCCEEDED: "kind", _INTERVAL: "kind"}
