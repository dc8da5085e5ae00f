"""The worker's handlers of the outbox: bound to their messages, and stopped with the worker."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import Database
from shared.deliveries.outbox import SendDeliveries, enqueue_delivery, get_delivery
from shared.deliveries.sealed_addresses import seal_address
from shared.encryption import Encryption
from shared.messaging.queues import NOTIFICATIONS
from tests.shared.egress.servers import content, serve
from tests.support.data.identity import make_settings
from tests.support.processes.bound_worker import BoundWorker, bound_worker


@pytest.fixture
def worker(database_url: str, valkey_server: EmbeddedValkey) -> Iterator[BoundWorker]:
    settings = make_settings(
        database_url=database_url,
        redis_url=valkey_server.url,
        egress_allow_private=True,
        egress_allow_http=True,
    )
    with bound_worker(settings, [NOTIFICATIONS]) as worker:
        yield worker


def test_a_worker_sends_what_is_due_until_it_is_asked_to_stop(
    worker: BoundWorker, database: Database
) -> None:
    destination = uuid4()

    def enqueue(url: str) -> Any:
        sealed = seal_address(Encryption(worker.context.settings), url=url, headers={})
        with database.transaction() as session:
            return enqueue_delivery(
                session,
                kind="task",
                event="x",
                destination_id=destination,
                organization_id=uuid4(),
                body=b"{}",
                sealed_address=sealed,
            )

    with serve() as server:
        server.on("/", content(b""))
        sent = enqueue(server.url())
        worker.run(SendDeliveries.kind)
        worker.context.stop()
        waiting = enqueue(server.url())
        worker.run(SendDeliveries.kind)
    with database.transaction() as session:
        states = [
            get_delivery(session, destination_id=destination, delivery_id=at).state for at in (sent, waiting)
        ]
    assert states == ["Delivered", "Waiting"]
