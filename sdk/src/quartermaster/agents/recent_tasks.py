"""An in-memory store of recent tasks with a size limit. The store evicts the oldest tasks that do not run.

Clients can still read an evicted task, because the service stores all tasks.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import Task, TaskState

MAX_BYTES = 256 << 20
TASK_OVERHEAD_BYTES = 4096  # estimated memory of a task besides its content
TASK_ID_KEY = "quartermaster.made"
"""The key under which a call's state contains the future that receives the id of the call's task."""

ENDED = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_REJECTED,
    }
)
INTERRUPTED = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})


class RecentTasks(InMemoryTaskStore):
    """A task store with a size limit that never evicts a running task."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(owner_resolver=lambda _: "service")
        self._max_bytes = max_bytes
        self._bytes_of: dict[str, int] = {}
        self._bytes = 0
        self._idle: OrderedDict[str, None] = OrderedDict()

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Save a task, resolve the future of its id once the task is working, and evict tasks above the limit."""
        await super().save(task, context)
        self._count(task.id, TASK_OVERHEAD_BYTES + task.ByteSize())
        # Remove the task and append it again, so that tasks are in the order of their last change.
        self._idle.pop(task.id, None)
        if task.status.state in ENDED | INTERRUPTED:
            self._idle[task.id] = None
        if task.status.state != TaskState.TASK_STATE_SUBMITTED and task.status.state not in INTERRUPTED:
            _set_task_id(context.state, task.id)
        # Keep at least one task: it may be the task of this call, which the caller reads next.
        while self._bytes > self._max_bytes and len(self._idle) > 1:
            oldest, _ = self._idle.popitem(last=False)
            self._count(oldest, 0)
            await self.delete(oldest, context)

    def _count(self, task_id: str, size: int) -> None:
        self._bytes += size - self._bytes_of.pop(task_id, 0)
        if size:
            self._bytes_of[task_id] = size


def _set_task_id(state: Any, task_id: str) -> None:
    task_id_future = state.get(TASK_ID_KEY)
    if isinstance(task_id_future, asyncio.Future) and not task_id_future.done():
        task_id_future.set_result(task_id)
