"""What a front asks of its services before it says that it is ready, and what it measures of the whole service."""

from contextlib import suppress

import redis

from shared.metrics import HostMetrics
from shared.probes import Check, Probes
from shared.telemetry import BACKLOG, DEAD_DELIVERIES, OLDEST_BACKLOG_SECONDS
from shared.waiting_work import measure_waiting_work
from web.services import Services


def readiness_checks(services: Services) -> dict[str, Check]:
    """Give what the front needs, by name; each check raises when it is not well."""
    return {
        "database": services.database.check,
        "broker": services.valkey.ping,
        "blobs": services.blobs.check,
    }


def build_probes(services: Services, metrics: HostMetrics) -> Probes:
    """Answer for these services."""
    return Probes(readiness_checks(services), metrics, lambda: _measure_backlog(services))


def _measure_backlog(services: Services) -> None:
    with services.database.autocommit() as session:
        work = measure_waiting_work(session)
    with suppress(redis.RedisError):
        BACKLOG.labels("model_calls").set(services.models.invoker.queue.count())
    for backlog in work.backlogs:
        BACKLOG.labels(backlog.state).set(backlog.rows)
        OLDEST_BACKLOG_SECONDS.labels(backlog.state).set(backlog.oldest_seconds)
    DEAD_DELIVERIES.set(work.dead_deliveries)
