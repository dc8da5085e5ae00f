"""Tests of the wake-up of readers of a task: by a message through Valkey, and by polling the rows without one."""

import time
from collections.abc import Iterator
from uuid import UUID

import pytest
from sqlalchemy import insert, update

from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.tables import tasks
from shared.a2a.tasks.task_notifier import TaskNotifier, TaskWatch
from shared.db.database import Database
from shared.ids import new_id
from shared.messaging.valkey import connect_valkey
from tests.support.processes.stack import wait_until

NOBODY = "redis://127.0.0.1:1/0"


@pytest.fixture
def task_id(database: Database) -> UUID:
    task_id = new_id()
    row = {name: new_id() for name in ("organization_id", "deployment_id", "caller_id", "principal_id")}
    with database.transaction() as session:
        session.execute(
            insert(tasks).values(
                id=task_id,
                context_id="c",
                state="TASK_STATE_WORKING",
                is_visible=True,
                status_at="now()",
                **row,
            )
        )
    return task_id


@pytest.fixture
def watch(database: Database, valkey_server: EmbeddedValkey) -> Iterator[TaskWatch]:
    watch = TaskWatch(database, connect_valkey(valkey_server.url))
    yield watch
    watch.close()


def settle(watch: TaskWatch, task_id: UUID) -> None:
    """Wait for the first poll, which wakes all readers once."""
    with watch.watch(task_id) as waiting:
        waiting.wait(3)


def test_wake_up_message_wakes_only_the_readers_of_its_task(
    watch: TaskWatch, task_id: UUID, valkey_server: EmbeddedValkey
) -> None:
    notifier = TaskNotifier(connect_valkey(valkey_server.url))
    other = new_id()
    with watch.watch(task_id) as waiting, watch.watch(task_id) as also, watch.watch(other) as elsewhere:
        waiting.wait(3)
        also.wait(0)
        notifier.notify(task_id)
        assert waiting.wait(60)
        assert also.wait(60)
        assert not elsewhere.wait(0)


@pytest.mark.parametrize("values", [{"last_sequence": 1}, {"state": "TASK_STATE_FAILED"}])
def test_change_is_found_by_polling_without_a_message(
    database: Database, watch: TaskWatch, task_id: UUID, values: dict[str, object]
) -> None:
    with watch.watch(task_id) as waiting:
        waiting.wait(3)
        with database.transaction() as session:
            session.execute(update(tasks).where(tasks.c.id == task_id).values(values))
        assert waiting.wait(60)


def test_change_is_found_while_valkey_is_unavailable(database: Database, task_id: UUID) -> None:
    watch = TaskWatch(database, connect_valkey(NOBODY, timeout_seconds=0.1))
    with watch.watch(task_id) as waiting:
        assert waiting.wait(60)
    watch.close()


def test_notify_does_not_block_while_valkey_is_unavailable(task_id: UUID) -> None:
    notifier = TaskNotifier(connect_valkey(NOBODY, timeout_seconds=0.1))
    for _ in range(1000):
        notifier.notify(task_id)
    wait_until(lambda: notifier._silent_until > time.monotonic() - 60, "the failed publication is noticed")


def test_concurrent_wake_up_messages_wake_all_readers(
    watch: TaskWatch, task_id: UUID, valkey_server: EmbeddedValkey
) -> None:
    notifier = TaskNotifier(connect_valkey(valkey_server.url))
    with watch.watch(task_id) as waiting, watch.watch(new_id()) as other:
        waiting.wait(3)
        for _ in range(100):
            notifier.notify(waiting.task_id)
            notifier.notify(other.task_id)
        assert other.wait(60)
        assert waiting.wait(60)


def test_watch_without_readers_is_removed(watch: TaskWatch, task_id: UUID) -> None:
    settle(watch, task_id)
    wait_until(lambda: not watch._watches and not watch._seen, "nothing is kept")
