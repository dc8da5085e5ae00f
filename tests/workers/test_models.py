"""The part of a Celery worker that takes model calls: where it runs, and how it ends."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import redis
from celery import Celery

from deploy.embedded.valkey import EmbeddedValkey
from shared.ids import new_id
from shared.models.call_queue import KEYS, AcceptedRequest, CallQueue
from shared.models.catalog_file import CatalogFile
from shared.models.dialects import Dialect
from shared.models.heartbeats import Heartbeats
from shared.publisher import create_celery
from shared.replies import ReplyAddress
from tests.support.identity import make_settings
from tests.support.stack import wait_until
from workers import models
from workers.handling import WorkerContext
from workers.models import add_consumers

NOBODY = "quartermaster:replies:nobody"
ENTRY = CatalogFile(None).current().entries[0]
REQUEST = AcceptedRequest(
    entry=ENTRY, dialect=Dialect.CHAT, is_stream=False, created=0, body={"model": "none"}
)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "PATIENCE_SECONDS", 0.1)


@pytest.fixture
def context(database_url: str, valkey_server: EmbeddedValkey) -> Iterator[WorkerContext]:
    context = WorkerContext(make_settings(database_url=database_url, redis_url=valkey_server.url))
    yield context
    context.database.dispose()


@pytest.fixture
def app(context: WorkerContext, valkey_server: EmbeddedValkey) -> Iterator[Celery]:
    app = create_celery(valkey_server.url)
    add_consumers(app, context)
    yield app
    app.close()


@pytest.mark.parametrize(("queue", "takes"), [("models", True), ("uploads", False)])
def test_only_the_worker_of_the_queue_takes_calls(app: Celery, queue: str, *, takes: bool) -> None:
    app.amqp.queues.select([queue])
    (step,) = app.steps["worker"]
    worker = SimpleNamespace(app=app, concurrency=2)
    assert step(worker).include_if(worker) is takes


def test_calls_are_taken_from_the_workers_start_to_its_stop(
    app: Celery, valkey_server: EmbeddedValkey
) -> None:
    (step,) = app.steps["worker"]
    worker = SimpleNamespace(app=app, concurrency=2)
    part = step(worker)
    with redis.Redis.from_url(valkey_server.url) as valkey:
        queue = CallQueue(valkey)
        part.start(worker)
        queue.put(ReplyAddress(invocation_id=new_id(), channel=NOBODY), REQUEST, organization_id=new_id())
        wait_until(lambda: not queue.count(), "a call that is not there is taken, and ends")
        part.stop(worker)
        queue.put(ReplyAddress(invocation_id=new_id(), channel=NOBODY), REQUEST, organization_id=new_id())
        assert queue.count() == 1
        valkey.delete(*KEYS)


def test_calls_under_way_are_cancelled_once_the_drain_of_their_worker_is_over(
    app: Celery, context: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[object] = []

    def cancel_all(heartbeats: Heartbeats) -> None:
        cancelled.append(heartbeats)

    monkeypatch.setattr(models, "DRAIN_SECONDS", 0.0)
    monkeypatch.setattr(Heartbeats, "cancel_all", cancel_all)
    worker = SimpleNamespace(app=app, concurrency=2)
    part = app.steps["worker"].pop()(worker)
    context.stop()
    assert not cancelled, "a worker that takes no calls has nothing to drain"
    part.start(worker)
    context.stop()
    part.stop(worker)
    wait_until(lambda: cancelled, "the drain is over")
