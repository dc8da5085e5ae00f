"""A sweep occupies one thread of a process, stops in time, and continues behind the waiting messages."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from sqlalchemy import text

import workers.handling
from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import Database
from shared.files.blobs import open_blob_store
from shared.files.lifecycle import expiry
from shared.ids import new_id
from shared.messaging.broker import KEY_PREFIX, Broker
from shared.messaging.jobs import Handler
from shared.messaging.publisher import create_celery
from shared.messaging.queues import RETENTION
from shared.runtime.batches import BUDGET_SECONDS, Budget, budget, drain
from tests.support.data.identity import make_settings
from workers.handling import WorkerContext, bind

KIND = "test.sweep"


def bind_sweep(app: Celery, run: Callable[[], int], *, in_parallel: bool = False) -> None:
    handler = Handler(
        kind=KIND,
        queue=RETENTION,
        run=lambda _: run(),
        every_seconds=5,
        budget_seconds=BUDGET_SECONDS,
        in_parallel=in_parallel,
    )
    bind(app, handler, WorkerContext(make_settings()))


@pytest.fixture
def app(valkey_server: EmbeddedValkey) -> Iterator[Celery]:
    with closing(create_celery(valkey_server.url)) as app:
        yield app


@pytest.fixture
def sent(valkey_server: EmbeddedValkey) -> Iterator[Any]:
    """How many messages wait in the queue of sweeps."""
    with redis.Redis.from_url(valkey_server.url) as broker:
        broker.delete(KEY_PREFIX + RETENTION)
        yield lambda: Broker.of(valkey_server.url).depth(RETENTION)
        broker.delete(KEY_PREFIX + RETENTION)


def test_a_second_copy_ends_at_once_and_is_made_up_for(app: Celery, sent: Any) -> None:
    is_under_way, may_end, copies = threading.Event(), threading.Event(), []

    def sweep() -> int:
        copies.append(1)
        is_under_way.set()
        may_end.wait(90)
        return 0

    bind_sweep(app, sweep)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(app.tasks[KIND].apply)
        assert is_under_way.wait(90)
        for _ in range(3):
            app.tasks[KIND].apply().get()
        assert (len(copies), sent()) == (1, 0)
        may_end.set()
        first.result(90)
    assert (len(copies), sent()) == (1, 1)
    app.tasks[KIND].apply().get()
    assert (len(copies), sent()) == (2, 1)


def test_a_sweep_that_was_cut_short_is_sent_for_again(
    app: Celery, sent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers.handling, "budget", lambda _: budget(0))
    left = [5, 5, 2]
    bind_sweep(app, lambda: drain(lambda: left.pop(0), size=5))
    expected = [([5, 2], 1), ([2], 2), ([], 2)]
    for remaining, messages in expected:
        app.tasks[KIND].apply().get()
        assert (left, sent()) == (remaining, messages)


def test_parallel_job_does_not_wait_for_its_copy(app: Celery, sent: Any) -> None:
    both = threading.Barrier(2, timeout=90)

    def sweep() -> int:
        both.wait()
        return 0

    bind_sweep(app, sweep, in_parallel=True)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(app.tasks[KIND].apply) for _ in range(2)]:
            done.result(90)
    assert sent() == 0


def test_a_sweep_that_fails_may_be_begun_again(app: Celery, sent: Any) -> None:
    outcomes = [0, 1]

    def sweep() -> int:
        return 1 // outcomes.pop(0)

    bind_sweep(app, sweep)
    for _ in range(2):
        app.tasks[KIND].apply().get()
    assert (outcomes, sent()) == ([], 0)


def test_many_files_that_expire_at_once_hold_one_thread_for_a_bounded_time(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "BATCH_SIZE", 10)
    store = open_blob_store((tmp_path / "blobs").as_uri())
    with database.transaction() as session:
        session.execute(
            text("""
                INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state,
                    current_version_id, revision, retention_expires_at)
                SELECT gen_random_uuid(), :organization, :organization, 'MessagingMedia', 'PrincipalIdentity',
                    gen_random_uuid(), 'Available', gen_random_uuid(), 1, now() - :age
                FROM generate_series(1, 25)"""),
            {"organization": new_id(), "age": timedelta(minutes=1)},
        )
    rounds: list[Budget] = []
    while not rounds or rounds[-1].is_truncated:
        with budget(0) as given:
            expiry.expire_due(database, store)
        rounds.append(given)
    assert len(rounds) == 3
