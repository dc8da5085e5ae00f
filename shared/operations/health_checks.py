"""Check readiness and collect metrics of a process, for HTTP routes and the operations port.

A response is sent within seconds even if a dependency hangs. Each check runs in its own thread, one run at a time,
and counts as failed if it has not ended after a bounded wait.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from shared.errors import DomainError, Kind
from shared.observability.multiprocess_metrics import HostMetrics
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

READINESS_CACHE_SECONDS = 1.0
MEASURED_CACHE_SECONDS = 5.0
CHECK_SECONDS = 1.0
MEASURE_SECONDS = 2.0

Check = Callable[[], object]
Measure = Callable[[], Iterable[Metric]]


class HealthChecks:
    """Readiness and metrics, cached so that their cost does not depend on the number of probes."""

    def __init__(
        self, checks: Mapping[str, Check], metrics: HostMetrics, measures: Mapping[str, Measure] | None = None
    ) -> None:
        """Use `checks` for readiness, and `measures` for metrics of the whole service."""
        self._checks = {name: _Bounded(name, check) for name, check in checks.items()}
        self._measures = {name: _Bounded(name, _whole(measure)) for name, measure in (measures or {}).items()}
        self._metrics = metrics
        self._checking, self._measuring = threading.Lock(), threading.Lock()
        self._ready: tuple[float, dict[str, str]] = (0.0, {})
        self._measured: tuple[float, list[Metric]] = (0.0, [])

    def readiness(self) -> dict[str, str]:
        """Return each check's outcome, `ok` or an error code; at most one second old, within about one second."""
        with self._checking:
            if time.monotonic() - self._ready[0] > READINESS_CACHE_SECONDS:
                outcomes = _run_all(self._checks, CHECK_SECONDS)
                self._ready = (time.monotonic(), outcomes)
            return self._ready[1]

    @staticmethod
    def status(outcomes: Mapping[str, str]) -> str:
        """Return `ok` if all outcomes are, else `unavailable`."""
        return "ok" if all(outcome == "ok" for outcome in outcomes.values()) else "unavailable"

    def metrics(self) -> bytes:
        """Return the metrics of all processes of this host in Prometheus' text format.

        Parts of the service that could not be measured in time are left out.
        """
        with self._measuring:
            # Use the cached figures, so that several scrapers do not multiply the load of measuring.
            if time.monotonic() - self._measured[0] > MEASURED_CACHE_SECONDS:
                self._measured = (time.monotonic(), self._measure())
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        yield from self._metrics.collect()
        yield from self._measured[1]

    def _measure(self) -> list[Metric]:
        """Measure within MEASURE_SECONDS; families of the same name are merged."""
        outcomes = _run_all(self._measures, MEASURE_SECONDS)
        success = GaugeMetricFamily(
            "quartermaster_measurement_success",
            "Whether a part of the service could be measured for this response.",
            labels=["measurement"],
        )
        families: dict[str, Metric] = {success.name: success} if outcomes else {}
        for name, outcome in outcomes.items():
            success.add_metric([name], outcome == "ok")
            for family in self._measures[name].result if outcome == "ok" else ():
                families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                families[family.name].samples += family.samples
        return list(families.values())


class _Bounded:
    """A check with one run at a time and a bounded wait."""

    def __init__(self, name: str, check: Check) -> None:
        self._name = name
        self._check = check
        self._ended = threading.Event()
        self._ended.set()
        self._outcome = "unavailable"
        self.result: Any = None

    def start(self) -> None:
        """Start a run, unless the last one still hangs."""
        if self._ended.is_set():
            self._ended.clear()
            # Use a daemon thread: a check that hangs must not block the end of the process.
            threading.Thread(target=self._run, name=f"check-{self._name}", daemon=True).start()

    def outcome(self, deadline: float) -> str:
        """Return the outcome, or `unavailable` if there is none at the deadline."""
        return self._outcome if self._ended.wait(max(0.0, deadline - time.monotonic())) else "unavailable"

    def _run(self) -> None:
        try:
            self.result = self._check()
            self._outcome = "ok"
        except Exception as error:  # noqa: BLE001 (any failure means: not ready)
            log.warning("readiness.failed", check=self._name, error=str(error))
            self._outcome = _outcome_of(error)
        finally:
            self._ended.set()


def _whole(measure: Measure) -> Check:
    """Return a check that runs a generator to its end inside the time limit, and not when metrics are rendered."""
    return lambda: list(measure())


def _outcome_of(error: Exception) -> str:
    """Distinguish a full or read-only store, which still serves reads, from an unreachable server."""
    if isinstance(error, DomainError) and error.kind is Kind.STORAGE_FULL:
        return error.code
    return "unavailable"


def _run_all(checks: Mapping[str, _Bounded], seconds: float) -> dict[str, str]:
    deadline = time.monotonic() + seconds
    for check in checks.values():
        check.start()
    return {name: check.outcome(deadline) for name, check in checks.items()}
