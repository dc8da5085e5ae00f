"""Metrics of the whole service, measured by a web process on request: backlogs, and the load of each server.

Each function measures one server or kind of backlog, so that an unreachable server hides no other metrics.
`health_checks.py` bounds the time of each measurement.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import redis
from prometheus_client.core import GaugeMetricFamily, Metric
from sqlalchemy import text

from shared.db.database import Database
from shared.files.blobs.base import BlobStore
from shared.messaging.broker import Broker
from shared.messaging.queues import MODELS, QUEUES
from shared.models.queue.call_queue import CallQueue
from shared.operations.queue_depths import measure_waiting_work

# Model calls are measured by `measure_model_calls`, which also reports their age.
JOB_QUEUES = tuple(queue for queue in QUEUES if queue not in MODELS)


def measure_backlog(database: Database) -> Iterator[Metric]:
    """Count pending rows by state."""
    with database.autocommit() as session:
        work = measure_waiting_work(session)
    yield from _backlog(
        {at.state: at.rows for at in work.backlogs}, {at.state: at.oldest_seconds for at in work.backlogs}
    )
    yield _gauge(
        "deliveries_dead",
        "Messages to other services that were given up and can be sent again.",
        work.dead_deliveries,
    )


def measure_model_calls(queue: CallQueue) -> Iterator[Metric]:
    """Count model calls that wait for a worker."""
    yield from _backlog({"model_calls": queue.count()}, {"model_calls": queue.oldest_seconds()})


def measure_queues(broker: Broker) -> Iterator[Metric]:
    """Count messages in each queue."""
    lengths = {queue: broker.depth(queue) for queue in JOB_QUEUES}
    yield _gauges("queue_messages", "Messages that wait in a queue of the broker.", "queue", lengths)


def measure_postgres(database: Database) -> Iterator[Metric]:
    """Yield Postgres' connections, oldest transaction and database size."""
    with database.autocommit() as session:
        row = session.execute(_POSTGRES).one()
    yield _gauge("postgres_connections", "Connections to Postgres, of all its clients.", row.connections)
    yield _gauge("postgres_max_connections", "Connections that Postgres lets in.", row.most)
    yield _gauge(
        "postgres_longest_transaction_seconds",
        "Age of the service's oldest transaction.",
        row.longest_seconds,
    )
    yield _gauge("postgres_database_bytes", "Size of the database with its indexes.", row.size_bytes)


_POSTGRES = text(
    """
SELECT count(*) AS connections, current_setting('max_connections')::integer AS most,
    coalesce(extract(epoch FROM now() - min(xact_start) FILTER (WHERE usename = current_user)), 0)::float
        AS longest_seconds,
    pg_database_size(current_database()) AS size_bytes
FROM pg_stat_activity WHERE backend_type = 'client backend'
"""
)


def measure_valkeys(valkeys: Mapping[str, redis.Redis]) -> Iterator[Metric]:
    """Yield used and maximum memory of each Valkey, by its purpose."""
    used, most = {}, {}
    for name, valkey in valkeys.items():
        memory: Any = valkey.info("memory")
        used[name], most[name] = memory["used_memory"], memory["maxmemory"]
    yield _gauges("valkey_memory_bytes", "Memory that a Valkey uses.", "server", used)
    yield _gauges("valkey_max_memory_bytes", "Memory that a Valkey may use; 0 for no limit.", "server", most)


def measure_store(store: BlobStore) -> Iterator[Metric]:
    """Yield free space and size of a local blob store's disk."""
    disk = store.disk()
    if disk is not None:
        yield _gauge("store_free_bytes", "Room left on the disk of a local blob store.", disk.free_bytes)
        yield _gauge("store_size_bytes", "Size of the disk of a local blob store.", disk.size_bytes)


def _backlog(rows: Mapping[str, float], oldest_seconds: Mapping[str, float]) -> Iterator[Metric]:
    yield _gauges("backlog", "Work that waits for a worker, by state.", "state", rows)
    yield _gauges("backlog_oldest_seconds", "Age of the oldest that waits.", "state", oldest_seconds)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"quartermaster_{name}", meaning, value=value)


def _gauges(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"quartermaster_{name}", meaning, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family
