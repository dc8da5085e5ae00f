"""The readiness checks of the web process, and its measurements of the whole service for metrics."""

from collections.abc import Mapping
from functools import partial

from shared.messaging.valkey import connect_valkey
from shared.observability.multiprocess_metrics import HostMetrics
from shared.operations.health_checks import Check, HealthChecks, Measure
from shared.operations.service_metrics import (
    measure_backlog,
    measure_model_calls,
    measure_postgres,
    measure_queues,
    measure_store,
    measure_valkeys,
)
from web.dependencies.services import Services


def readiness_checks(services: Services) -> dict[str, Check]:
    """Return the checks of the servers that the web process needs, by name.

    Each check raises an error if its server fails.
    """
    return {
        "database": services.database.check,
        "broker": services.valkey.ping,
        "blobs": services.blobs.check,
    }


def build_health_checks(services: Services, metrics: HostMetrics) -> HealthChecks:
    """Create the health checks and the measurements of the given services."""
    return HealthChecks(readiness_checks(services), metrics, _measures(services))


def _measures(services: Services) -> Mapping[str, Measure]:
    settings = services.settings
    valkeys = {"jobs": services.valkey}
    # Model calls may have their own Valkey. If they share the service's Valkey, measure it once.
    if settings.models_redis_url not in (None, settings.redis_url):
        # One connection is enough, because a measurement sends one command at a time.
        valkeys["models"] = connect_valkey(str(settings.models_redis_url), max_connections=1)
    return {
        "backlog": partial(measure_backlog, services.database),
        "model_calls": partial(measure_model_calls, services.models.invoker.queue),
        "queues": partial(measure_queues, services.broker),
        "postgres": partial(measure_postgres, services.database),
        "valkeys": partial(measure_valkeys, valkeys),
        "store": partial(measure_store, services.blobs),
    }
