"""The worker's handlers of imports leave some threads for other jobs."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.distributions import rotate_webhook_secret, update_distribution
from shared.media.importing.fetch_job import SPARE_THREADS
from shared.media.importing.import_queue import queue_imports
from shared.media.importing.imports import STANDARD
from shared.media.network_setup.network_administration import put_network_settings
from shared.media.networks.registry import NETWORKS
from shared.messaging.queues import MEDIA, RETENTION
from tests.shared.media.conftest import attachment, make_mailbox
from tests.support.data.identity import make_settings
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import Handler, MediaSource, content
from tests.support.processes.bound_worker import BoundWorker, bound_worker
from workers.handling import WorkerContext


@pytest.fixture
def worker(database_url: str, valkey_server: EmbeddedValkey, tmp_path: Path) -> Iterator[BoundWorker]:
    settings = make_settings(
        database_url=database_url,
        redis_url=valkey_server.url,
        blob_store=(tmp_path / "blobs").as_uri(),
        egress_allow_private=True,
    )
    with bound_worker(settings, [MEDIA, RETENTION]) as worker:
        yield worker
        with worker.context.database.autocommit() as session:
            session.execute(text("DELETE FROM media_imports"))


def test_slow_sources_leave_some_threads_of_the_worker_alone(worker: BoundWorker, database: Database) -> None:
    worker.context.threads = SPARE_THREADS + 1
    is_asked, may_answer = threading.Event(), threading.Event()

    def hesitate(handler: Handler) -> None:
        is_asked.set()
        may_answer.wait(90)
        content(PNG.content)(handler)

    with MediaSource() as source, ThreadPoolExecutor(1) as pool:
        push(
            worker.context,
            database,
            source.serve("/slow", hesitate),
            source.serve("/next", content(PNG.content)),
        )
        fetching = pool.submit(worker.run, "media.fetch_due")
        assert is_asked.wait(90)
        worker.run("media.fetch_due")
        assert source.count("/next") == 0
        may_answer.set()
        fetching.result(90)
        assert source.count("/next") == 1
    with database.autocommit() as session:
        states = session.execute(text("SELECT state FROM media_imports")).scalars().all()
    assert states == ["Stored", "Stored"]


def test_a_worker_that_is_asked_to_stop_begins_no_import(worker: BoundWorker, database: Database) -> None:
    with MediaSource() as source:
        worker.run("media.fetch_due")
        worker.context.stop()
        push(worker.context, database, source.serve("/late", content(PNG.content)))
        worker.run("media.fetch_due")
        assert source.count("/late") == 0


def test_replaced_secrets_are_erased_when_their_time_is_over(worker: BoundWorker, database: Database) -> None:
    for overlap_seconds in (0, 3600):
        replace_secrets(worker.context, database, make_mailbox(database).id, overlap_seconds=overlap_seconds)
    worker.run("media.forget_replaced_secrets")
    with database.autocommit() as session:
        for kept in (
            "previous_webhook_secret_encrypted FROM distributions",
            "previous_encrypted FROM network_settings",
        ):
            found = session.execute(text(f"SELECT {kept}")).scalars().all()
            assert sum(secret is not None for secret in found) == 1, kept


def replace_secrets(
    context: WorkerContext, database: Database, distribution_id: UUID, *, overlap_seconds: int
) -> None:
    with database.transaction() as session:
        update_distribution(session, actor=OPERATOR, distribution_id=distribution_id, networks=["telegram"])
        for secret in ("first", "second"):
            put_network_settings(
                session,
                context.settings,
                actor=OPERATOR,
                distribution_id=distribution_id,
                network=NETWORKS["telegram"],
                values={"secretToken": secret * 4, "botToken": "123456:" + "t" * 30},
                overlap_seconds=overlap_seconds,
            )
        rotate_webhook_secret(
            session,
            context.settings,
            actor=OPERATOR,
            distribution_id=distribution_id,
            overlap_seconds=overlap_seconds,
        )


def push(context: WorkerContext, database: Database, *urls: str) -> None:
    mailbox = make_mailbox(database)
    for url in urls:
        with database.transaction() as session:
            queue_imports(
                session,
                context.settings,
                distribution_id=mailbox.id,
                network=STANDARD,
                attachments=[attachment(url)],
            )
