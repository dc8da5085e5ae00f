"""Run the skill that a message asks for, as a task: whatever it raises becomes a failed task with a safe sentence."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial

import anyio
from a2a.server.agent_execution import AgentExecutor
from a2a.server.agent_execution import RequestContext as Request
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Task, TaskState, TaskStatus
from google.protobuf.json_format import MessageToDict

from quartermaster.agents.connection import Connection
from quartermaster.agents.messages import read_arguments
from quartermaster.agents.outputs import Failed
from quartermaster.agents.running import run_skill
from quartermaster.agents.skills import SKILL_KEY, Skill, choose_skill
from quartermaster.agents.writing import TurnWriter

SAFE_SENTENCE = "The agent could not finish this."
_log = logging.getLogger("quartermaster.agents")


class SkillExecutor(AgentExecutor):
    """Executes an agent's skills; functions that are not `async` in up to `threads` threads."""

    def __init__(self, skills: Mapping[str, Skill], connection: Connection, *, threads: int) -> None:
        self._skills = skills
        self._connection = connection
        self._limiter = anyio.CapacityLimiter(threads)

    async def execute(self, context: Request, event_queue: EventQueue) -> None:
        """Answer a message."""
        updater = await _begin(context, event_queue)
        metadata = MessageToDict(context.message.metadata) if context.message else {}
        skill = choose_skill(self._skills, metadata.get(SKILL_KEY))
        writer = TurnWriter(updater, self._connection, title=skill.name, active=context.requested_extensions)
        try:
            is_waiting = await self._run(skill, context, writer)
        except Failed as failure:
            await writer.fail(str(failure))
        except (Exception, SystemExit):  # noqa: BLE001 (a caller is told nothing of what an exception holds)
            _log.exception("The skill %s failed in task %s.", skill.id, context.task_id)
            await writer.fail(SAFE_SENTENCE)
        else:
            if not is_waiting:
                await updater.complete()

    async def cancel(self, context: Request, event_queue: EventQueue) -> None:
        """Cancel a task; a thread goes on until its next step, and what it gives then is dropped."""
        await _updater(context, event_queue).cancel()

    async def _run(self, skill: Skill, request: Request, writer: TurnWriter) -> bool:
        arguments = read_arguments(skill, request, self._connection)
        async with aclosing(run_skill(partial(skill.function, **arguments), self._limiter)) as outputs:
            async for output in outputs:
                if await writer.write(output):
                    return True
        return False


async def _begin(request: Request, queue: EventQueue) -> TaskUpdater:
    """Make the task, which must exist before anything is said of it."""
    updater = _updater(request, queue)
    if request.current_task is None:
        task = Task(id=updater.task_id, context_id=updater.context_id)
        task.status.CopyFrom(TaskStatus(state=TaskState.TASK_STATE_SUBMITTED))
        if request.message is not None:
            task.history.append(request.message)
        await queue.enqueue_event(task)
    await updater.start_work()
    return updater


def _updater(request: Request, queue: EventQueue) -> TaskUpdater:
    # Without the task's own context a message that names the task alone would move its updates to a new one.
    task = request.current_task
    context_id = task.context_id if task is not None else request.context_id
    return TaskUpdater(queue, request.task_id or "", context_id or "")
