"""The worker's handlers of the outbox: bound to their messages, and stopped when the worker is asked to stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, _state
from celery.signals import worker_shutting_down

from deploy.embedded.valkey import EmbeddedValkey
from shared.database import Database
from shared.deliveries.jobs import PurgeDeliveries, SendDeliveries
from shared.deliveries.outbox import enqueue_delivery, get_delivery, seal_address
from shared.encryption import Encryption
from shared.jobs import create_celery
from shared.media.notification_jobs import NoticeExpiredMedia
from tests.shared.egress.servers import content, serve
from tests.support.identity import make_settings
from workers.deliveries import bind_deliveries
from workers.handling import WorkerContext
from workers.schedule import SCHEDULE


@pytest.fixture
def context(database_url: str, valkey_server: EmbeddedValkey) -> Iterator[WorkerContext]:
    settings = make_settings(
        database_url=database_url,
        redis_url=valkey_server.url,
        egress_allow_private=True,
        egress_allow_http=True,
    )
    context = WorkerContext(settings)
    yield context
    context.database.dispose()


@pytest.fixture
def app(context: WorkerContext) -> Iterator[Celery]:
    # Celery tells every application of a process of every other's tasks; this one must have its own handlers.
    shared_tasks: Any = _state
    others, shared_tasks._on_app_finalizers = shared_tasks._on_app_finalizers, set()
    app = create_celery(context.settings.redis_url)
    receivers: Any = list(worker_shutting_down.receivers)
    bind_deliveries(app, context)
    yield app
    worker_shutting_down.receivers = receivers
    shared_tasks._on_app_finalizers = others
    app.close()


def test_a_worker_sends_what_is_due_until_it_is_asked_to_stop(
    app: Celery, context: WorkerContext, database: Database
) -> None:
    destination = uuid4()

    def enqueue(url: str) -> Any:
        sealed = seal_address(Encryption(context.settings), url=url, headers={})
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
        app.tasks[SendDeliveries.kind].apply().get()
        worker_shutting_down.send(sender=None)
        waiting = enqueue(server.url())
        app.tasks[SendDeliveries.kind].apply().get()
    with database.transaction() as session:
        states = [
            get_delivery(session, destination_id=destination, delivery_id=at).state for at in (sent, waiting)
        ]
    assert states == ["Delivered", "Waiting"]


def test_a_worker_that_has_sent_nothing_has_nothing_to_stop(app: Celery) -> None:
    worker_shutting_down.send(sender=None)


@pytest.mark.parametrize("job", [PurgeDeliveries, NoticeExpiredMedia])
def test_sweeps_find_nothing_where_there_is_nothing(app: Celery, job: Any) -> None:
    assert app.tasks[job.kind].apply().get() is None


@pytest.mark.parametrize("job", [SendDeliveries, PurgeDeliveries, NoticeExpiredMedia])
def test_every_job_of_the_outbox_has_its_time(job: Any) -> None:
    assert SCHEDULE[job.kind]["options"]["queue"] == job.queue
