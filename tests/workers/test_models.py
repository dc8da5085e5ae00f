"""The worker's handler of model calls: bound to its message, and drained when the worker is asked to stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, _state
from celery.signals import worker_shutting_down

from deploy.embedded.valkey import EmbeddedValkey
from shared.ids import new_id
from shared.jobs import create_celery, message
from shared.models.attendance import Attendance
from shared.models.jobs import Invoke
from tests.support.identity import make_settings
from tests.support.stack import wait_until
from workers import models
from workers.handling import Depot
from workers.models import ModelDepot, bind_models


@pytest.fixture(scope="module")
def app(database_url: str, valkey_server: EmbeddedValkey) -> Iterator[Celery]:
    # Celery tells every application of a process of every other's tasks; this one must have its own handler.
    shared_tasks: Any = _state
    others, shared_tasks._on_app_finalizers = shared_tasks._on_app_finalizers, set()
    app = create_celery(valkey_server.url)
    depot = Depot(make_settings(database_url=database_url, redis_url=valkey_server.url))
    receivers: Any = list(worker_shutting_down.receivers)
    bind_models(app, depot)
    yield app
    worker_shutting_down.receivers = receivers
    shared_tasks._on_app_finalizers = others
    depot.database.dispose()
    app.close()


def test_a_worker_that_has_made_no_call_yet_has_nothing_to_drain(app: Celery) -> None:
    worker_shutting_down.send(sender=None)


def test_a_message_for_a_call_that_is_not_there_is_acknowledged(app: Celery) -> None:
    job = Invoke(invocation_id=str(new_id()), stream="quartermaster:replies:nobody")
    assert app.tasks[Invoke.kind].apply(kwargs=message(job)).get() is None


def test_calls_under_way_are_cancelled_once_the_drain_is_over(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[object] = []
    monkeypatch.setattr(models, "DRAIN_SECONDS", 0.0)

    def cancel_all(attendance: Attendance) -> None:
        cancelled.append(attendance)

    monkeypatch.setattr(Attendance, "cancel_all", cancel_all)
    app.tasks[Invoke.kind].apply(
        kwargs=message(Invoke(invocation_id=str(new_id()), stream="quartermaster:replies:nobody"))
    )
    worker_shutting_down.send(sender=None)
    wait_until(lambda: cancelled, "the drain is over")


def test_everything_a_call_needs_is_made_once(database_url: str, valkey_server: EmbeddedValkey) -> None:
    depot = Depot(make_settings(database_url=database_url, redis_url=valkey_server.url))
    made = ModelDepot(depot)
    assert made.executor is made.executor
    assert made.executor.database is depot.database
    depot.database.dispose()
