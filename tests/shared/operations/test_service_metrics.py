"""The metrics of the whole service that a web process measures."""

from pathlib import Path
from uuid import uuid4

from prometheus_client import REGISTRY

from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import Database
from shared.files.blobs import open_blob_store
from shared.files.blobs.base import Blob
from shared.ids import made_at, new_id
from shared.messaging.queues import MODELS
from shared.messaging.replies import ReplyAddress
from shared.messaging.valkey import connect_valkey
from shared.models.queue.call_queue import CallQueue, QueuedCall
from shared.operations.service_metrics import (
    measure_model_calls,
    measure_postgres,
    measure_store,
    measure_valkeys,
)
from tests.support.processes.stack import wait_until


def test_waiting_model_calls_have_an_age(valkey_server: EmbeddedValkey) -> None:
    valkey = connect_valkey(valkey_server.url.rpartition("/")[0] + "/11")
    queue = CallQueue(valkey)
    assert [sample.value for family in measure_model_calls(queue) for sample in family.samples] == [0, 0]
    address = ReplyAddress(invocation_id=new_id(), channel="c")
    queue.requeue(QueuedCall(address=address, provider="p", queue=MODELS[3]))
    wait_until(lambda: queue.oldest_seconds() > 0.01, "it grows")
    assert made_at(address.invocation_id) > 1.7e9
    valkey.flushdb()


def test_services_say_how_full_they_are(
    database: Database, valkey_server: EmbeddedValkey, tmp_path: Path
) -> None:
    families = [
        *measure_postgres(database),
        *measure_valkeys({"jobs": connect_valkey(valkey_server.url)}),
        *measure_store(open_blob_store(tmp_path.as_uri())),
    ]
    values = {family.name.removeprefix("quartermaster_"): family.samples[0].value for family in families}
    assert 0 < values["postgres_connections"] < values["postgres_max_connections"]
    assert values["postgres_longest_transaction_seconds"] >= 0
    assert values["postgres_database_bytes"] > 0
    assert values["valkey_memory_bytes"] > 0
    assert 0 < values["store_free_bytes"] < values["store_size_bytes"]


def test_a_store_is_counted_by_outcome_and_a_failure_beside_the_call(tmp_path: Path) -> None:
    store = open_blob_store(tmp_path.as_uri())

    def counted(operation: str, outcome: str) -> float:
        labels = {"operation": operation, "outcome": outcome}
        return REGISTRY.get_sample_value("quartermaster_store_requests_total", labels) or 0.0

    before = counted("place", "ok"), counted("place", "blob_missing")
    assert list(store.place([Blob(version_id=(version := uuid4()), size_bytes=1)])) == [version]
    assert (counted("place", "ok"), counted("place", "blob_missing")) == (before[0] + 1, before[1] + 1)


def test_connections_in_use_are_counted(database: Database) -> None:
    used, _ = database.pool_use()
    with database.transaction():
        assert database.pool_use()[0] == used + 1
    assert (REGISTRY.get_sample_value("quartermaster_database_pool_size") or 0) >= database.pool_use()[1]
