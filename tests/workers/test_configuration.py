"""How workers and beat are configured: every job has a handler and a sweep, and Celery is told what it must know."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing

import pytest
from celery import Celery
from celery.beat import Scheduler
from cryptography.fernet import Fernet

import shared.a2a.jobs
import shared.a2a.schedules.jobs
import shared.credits.jobs
import shared.deliveries.jobs
import shared.files.jobs
import shared.identity.jobs
import shared.media.jobs
import shared.media.notification_jobs
from deploy.process_types import WORKERS
from shared.jobs import QUEUES, Job, create_celery
from shared.settings import Settings
from workers.handling import WorkerContext
from workers.registry import bind_parts
from workers.schedule import SCHEDULE

JOBS: list[type[Job]] = [
    job
    for module in (
        shared.files.jobs,
        shared.identity.jobs,
        shared.credits.jobs,
        shared.deliveries.jobs,
        shared.media.jobs,
        shared.media.notification_jobs,
        shared.a2a.jobs,
        shared.a2a.schedules.jobs,
    )
    for job in vars(module).values()
    if isinstance(job, type) and Job in job.__mro__[1:]
]


@pytest.fixture(scope="module")
def context() -> WorkerContext:
    settings = Settings(
        database_url="postgresql://nowhere/nothing",
        redis_url="redis://127.0.0.1:1/0",
        blob_store="file:///nowhere",
        encryption_keys=Fernet.generate_key().decode(),
    )
    return WorkerContext(settings)


@pytest.fixture(scope="module")
def app(context: WorkerContext) -> Iterator[Celery]:
    with closing(create_celery("redis://127.0.0.1:1/0")) as app:
        bind_parts(app, context, QUEUES)
        yield app


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_every_job_has_a_handler_and_a_worker(app: Celery, job: type[Job]) -> None:
    assert job.kind in app.tasks
    assert [name for name, worker in WORKERS.items() if job.queue in worker.queues]


@pytest.mark.parametrize("name", sorted(WORKERS))
def test_a_worker_has_the_handlers_of_its_queues(context: WorkerContext, name: str) -> None:
    queues = WORKERS[name].queues
    with closing(create_celery("redis://127.0.0.1:1/0")) as app:
        bind_parts(app, context, queues)
        assert [job.kind for job in JOBS if job.queue in queues and job.kind not in app.tasks] == []


@pytest.mark.parametrize("job", [job for job in JOBS if not dataclasses.fields(job)], ids=str)
def test_every_job_that_is_a_hint_is_on_the_schedule(job: type[Job]) -> None:
    assert SCHEDULE[job.kind]["task"] == job.kind
    assert SCHEDULE[job.kind]["options"]["queue"] == job.queue


def test_every_kind_is_one_jobs_only() -> None:
    assert len({job.kind for job in JOBS}) == len(JOBS) > 0


def test_every_sweep_that_no_worker_took_in_its_interval_is_dropped() -> None:
    for entry in SCHEDULE.values():
        assert entry["options"]["expires"] <= entry["schedule"]


def test_every_queue_is_served(app: Celery) -> None:
    served = {queue for worker in WORKERS.values() for queue in worker.queues}
    assert served == set(QUEUES) == {queue.name for queue in app.conf.task_queues}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task_acks_late", True),
        ("task_reject_on_worker_lost", True),
        ("worker_prefetch_multiplier", 1),
        ("result_backend", None),
        ("task_ignore_result", True),
        ("task_serializer", "json"),
        ("accept_content", ["json"]),
        ("task_create_missing_queues", False),
        ("broker_connection_retry_on_startup", True),
        ("broker_connection_max_retries", None),
        ("task_send_sent_event", False),
        ("worker_send_task_events", False),
        ("worker_soft_shutdown_timeout", 20),
        ("worker_enable_soft_shutdown_on_idle", True),
        ("worker_eta_task_limit", 1000),
    ],
)
def test_celery_knows_the_setting(app: Celery, name: str, value: object) -> None:
    assert app.conf[name] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("socket_timeout", 5),
        ("socket_connect_timeout", 1),
        ("socket_keepalive", True),
        ("health_check_interval", 10),
        ("visibility_timeout", 3600),
        ("unacked_restore_interval", 5),
        ("unacked_restore_throttle", 1),
        ("priority_steps", [0]),
    ],
)
def test_no_wait_for_the_broker_is_without_bound(app: Celery, name: str, value: object) -> None:
    assert app.conf.broker_transport_options[name] == value


@pytest.mark.parametrize("name", sorted(WORKERS))
def test_workers_run_threads_without_gossip(name: str) -> None:
    from deploy.process_types import worker_command

    command = worker_command(name, {})
    assert command[command.index("--pool") + 1] == "threads"
    assert {"--without-gossip", "--without-mingle", "--without-heartbeat"} <= set(command)


def test_a_beat_that_starts_sends_every_sweep_at_once() -> None:
    with closing(create_celery("redis://127.0.0.1:1/0")) as app:
        app.conf.beat_schedule = SCHEDULE
        scheduler = Scheduler(app, lazy=True)
        scheduler.update_from_dict(SCHEDULE)
        entries = list(scheduler.schedule.values())
        assert len(entries) == len(SCHEDULE)
        assert [entry.name for entry in entries if not entry.is_due()[0]] == []
        assert [entry.name for entry in entries if next(entry).is_due()[0]] == []
