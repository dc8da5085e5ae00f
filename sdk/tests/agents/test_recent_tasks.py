"""The task store has a size limit, and never evicts a running task."""

from __future__ import annotations

import asyncio

from a2a.server.context import ServerCallContext
from a2a.types import Task, TaskState, TaskStatus

from quartermaster.agents.recent_tasks import TASK_OVERHEAD_BYTES, RecentTasks

CONTEXT = ServerCallContext()


def task(name: str, state: TaskState) -> Task:
    return Task(id=name, context_id="c", status=TaskStatus(state=state))


async def known(store: RecentTasks, *names: str) -> list[bool]:
    return [await store.get(name, CONTEXT) is not None for name in names]


def test_what_has_ended_longest_goes_first() -> None:
    async def act() -> list[bool]:
        store = RecentTasks(max_bytes=TASK_OVERHEAD_BYTES * 3)
        await store.save(task("working", TaskState.TASK_STATE_WORKING), CONTEXT)
        for name in ("first", "second", "third"):
            await store.save(task(name, TaskState.TASK_STATE_WORKING), CONTEXT)
            await store.save(task(name, TaskState.TASK_STATE_COMPLETED), CONTEXT)
        return await known(store, "working", "first", "second", "third")

    assert asyncio.run(act()) == [True, False, False, True]


def test_the_newest_stays_however_large_it_is() -> None:
    async def act() -> list[bool]:
        store = RecentTasks(max_bytes=1)
        await store.save(task("large", TaskState.TASK_STATE_COMPLETED), CONTEXT)
        return await known(store, "large")

    assert asyncio.run(act()) == [True]
