"""The tasks of this process, as many as fit: a task that has ended goes when newer ones need its place.

What clients rely on lies in the service, which sends the agent each message once and keeps what it answers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import Task, TaskState

MAX_BYTES = 256 << 20
BYTES_OF_A_TASK = 4096  # beside its content
MADE_KEY = "quartermaster.made"
"""The member of a call's state with the future of the id of the task that the call works on."""

ENDED = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_REJECTED,
    }
)
PAUSED = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})


class RecentTasks(InMemoryTaskStore):
    """A store of tasks with a bound; tasks that are worked on always fit."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(owner_resolver=lambda _: "service")
        self._max_bytes = max_bytes
        self._bytes_of: dict[str, int] = {}
        self._bytes = 0
        self._resting: OrderedDict[str, None] = OrderedDict()

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Save a task, and tell the call that waits for its id once work has begun."""
        await super().save(task, context)
        self._count(task.id, BYTES_OF_A_TASK + task.ByteSize())
        self._resting.pop(task.id, None)
        if task.status.state in ENDED | PAUSED:
            self._resting[task.id] = None
        if task.status.state != TaskState.TASK_STATE_SUBMITTED and task.status.state not in PAUSED:
            _tell(context.state, task.id)
        while self._bytes > self._max_bytes and len(self._resting) > 1:
            oldest, _ = self._resting.popitem(last=False)
            self._count(oldest, 0)
            await self.delete(oldest, context)

    def _count(self, task_id: str, size: int) -> None:
        self._bytes += size - self._bytes_of.pop(task_id, 0)
        if size:
            self._bytes_of[task_id] = size


def _tell(state: Any, task_id: str) -> None:
    made = state.get(MADE_KEY)
    if isinstance(made, asyncio.Future) and not made.done():
        made.set_result(task_id)
