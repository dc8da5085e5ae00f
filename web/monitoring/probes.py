"""What a front asks of its services before it says that it is ready, and what it measures of the whole service."""

from contextlib import suppress

import redis

from shared.a2a.turns.backlog import measure_turns
from shared.deliveries.backlog import measure_deliveries
from shared.files.backlog import measure_backlog
from shared.media.backlog import measure_imports
from shared.metrics import HostMetrics
from shared.probes import Check, Probes
from shared.telemetry import BACKLOG, DEAD_DELIVERIES, OLDEST_BACKLOG_SECONDS
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
        for backlog in measure_backlog(session):
            BACKLOG.labels(backlog.state).set(backlog.rows)
            OLDEST_BACKLOG_SECONDS.labels(backlog.state).set(backlog.oldest_seconds)
        deliveries = measure_deliveries(session)
        imports = measure_imports(session)
        turns = measure_turns(session)
    with suppress(redis.RedisError):
        BACKLOG.labels("model_calls").set(services.models.invoker.queue.count())
    BACKLOG.labels("deliveries").set(deliveries.due)
    OLDEST_BACKLOG_SECONDS.labels("deliveries").set(deliveries.oldest_due_seconds)
    DEAD_DELIVERIES.set(deliveries.dead)
    BACKLOG.labels("imports").set(imports.due)
    OLDEST_BACKLOG_SECONDS.labels("imports").set(imports.oldest_due_seconds)
    BACKLOG.labels("turns").set(turns.waiting)
    OLDEST_BACKLOG_SECONDS.labels("turns").set(turns.oldest_seconds)
