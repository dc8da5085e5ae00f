"""Tell operators and load balancers how the front is: alive, ready, and by numbers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import redis
from flask import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client import REGISTRY as PROCESS_REGISTRY
from prometheus_client.multiprocess import MultiProcessCollector

from shared.a2a.backlog import measure_turns
from shared.deliveries.backlog import measure_deliveries
from shared.files.backlog import measure_backlog
from shared.media.backlog import measure_imports
from shared.telemetry import BACKLOG, DEAD_DELIVERIES, OLDEST_BACKLOG_SECONDS, get_logger
from web.authentication import Authentication
from web.calls import Answer, Call
from web.routing import Routes
from web.values import Wire

log = get_logger(__name__)
routes = Routes("operations")

READINESS_CACHE_SECONDS = 1.0


class Health(Wire):
    """Whether the process is alive."""

    status: str


class Readiness(Wire):
    """Whether the front can do its work, check by check."""

    status: str
    checks: dict[str, str]


@routes.operation("GET", "/healthz", authentication=Authentication.PUBLIC, answers={200: Health})
def healthz(_: Call) -> Answer:
    """Tell that this process is alive; asks nobody else."""
    return Answer(body=Health(status="ok"))


@routes.operation(
    "GET", "/readyz", authentication=Authentication.PUBLIC, answers={200: Readiness, 503: Readiness}
)
def readyz(call: Call) -> Answer:
    """Tell whether database, broker and blob store answer; asked at most once a second."""
    checks = _readiness.get(call)
    is_ready = all(outcome == "ok" for outcome in checks.values())
    body = Readiness(status="ok" if is_ready else "unavailable", checks=checks)
    return Answer(body=body, status=200 if is_ready else 503)


@routes.operation("GET", "/metrics", authentication=Authentication.PUBLIC, answers={200: "text/plain"})
def metrics(call: Call) -> Response:
    """Give Prometheus the numbers of all web processes of this host."""
    with call.services.database.autocommit() as session:
        for backlog in measure_backlog(session):
            BACKLOG.labels(backlog.state).set(backlog.rows)
            OLDEST_BACKLOG_SECONDS.labels(backlog.state).set(backlog.oldest_seconds)
        deliveries = measure_deliveries(session)
        imports = measure_imports(session)
        turns = measure_turns(session)
    with suppress(redis.RedisError):
        BACKLOG.labels("model_calls").set(call.services.models.invoker.queue.count())
    BACKLOG.labels("deliveries").set(deliveries.due)
    OLDEST_BACKLOG_SECONDS.labels("deliveries").set(deliveries.oldest_due_seconds)
    DEAD_DELIVERIES.set(deliveries.dead)
    BACKLOG.labels("imports").set(imports.due)
    OLDEST_BACKLOG_SECONDS.labels("imports").set(imports.oldest_due_seconds)
    BACKLOG.labels("turns").set(turns.waiting)
    OLDEST_BACKLOG_SECONDS.labels("turns").set(turns.oldest_seconds)
    registry = PROCESS_REGISTRY
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class _ReadinessCache:
    """Asks the servers at most once a second, whatever the number of probes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checked_at = 0.0
        self._checks: dict[str, str] = {}

    def get(self, call: Call) -> dict[str, str]:
        with self._lock:
            if time.monotonic() - self._checked_at > READINESS_CACHE_SECONDS:
                services = call.services
                self._checks = {
                    "database": _check(services.database.check),
                    "broker": _check(services.valkey.ping),
                    "blobs": _check(services.blobs.check),
                }
                self._checked_at = time.monotonic()
            return self._checks


def _check(probe: Callable[[], object]) -> str:
    try:
        probe()
    except Exception as error:  # noqa: BLE001 (any failure means: not ready)
        log.warning("readiness.failed", error=str(error))
        return "unavailable"
    return "ok"


_readiness = _ReadinessCache()
