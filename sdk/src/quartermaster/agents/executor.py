"""Run the skill of a message as a task. If the skill raises, the task fails with a fixed message without details."""

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
from quartermaster.agents.skill_runner import run_skill
from quartermaster.agents.skills import SKILL_KEY, Skill, choose_skill
from quartermaster.agents.turn_writer import TurnWriter

SAFE_SENTENCE = "The agent could not finish this."
_log = logging.getLogger("quartermaster.agents")


class SkillExecutor(AgentExecutor):
    """Executes an agent's skills. Functions that are not `async` run in at most `threads` threads."""

    def __init__(self, skills: Mapping[str, Skill], connection: Connection, *, threads: int) -> None:
        self._skills = skills
        self._connection = connection
        self._limiter = anyio.CapacityLimiter(threads)

    async def execute(self, context: Request, event_queue: EventQueue) -> None:
        """Run the skill that a message selects, and write the skill's outputs as updates of the task."""
        updater = await _begin(context, event_queue)
        metadata = MessageToDict(context.message.metadata) if context.message else {}
        skill = choose_skill(self._skills, metadata.get(SKILL_KEY))
        writer = TurnWriter(updater, self._connection, title=skill.name, active=context.requested_extensions)
        try:
            is_waiting = await self._run(skill, context, writer)
        except Failed as failure:
            await writer.fail(str(failure))
        # Catch SystemExit too: a skill that calls sys.exit() must fail only its task, and not stop the server.
        except (Exception, SystemExit):  # noqa: BLE001 (an exception's text may be confidential: log it, and send a fixed sentence)
            _log.exception("The skill %s failed in task %s.", skill.id, context.task_id)
            await writer.fail(SAFE_SENTENCE)
        else:
            if not is_waiting:
                await updater.complete()

    async def cancel(self, context: Request, event_queue: EventQueue) -> None:
        """Cancel a task. A running thread continues until its current step ends. Further outputs are dropped."""
        await _updater(context, event_queue).cancel()

    async def _run(self, skill: Skill, request: Request, writer: TurnWriter) -> bool:
        arguments = read_arguments(skill, request, self._connection)
        async with aclosing(run_skill(partial(skill.function, **arguments), self._limiter)) as outputs:
            async for output in outputs:
                if await writer.write(output):
                    return True
        return False


async def _begin(request: Request, queue: EventQueue) -> TaskUpdater:
    """Create the task if it is new, and set its state to working. Return the updater of the task."""
    updater = _updater(request, queue)
    if request.current_task is None:
        task = Task(id=updater.task_id, context_id=updater.context_id)
        task.status.CopyFrom(TaskStatus(state=TaskState.TASK_STATE_SUBMITTED))
        if request.message is not None:
            task.history.append(request.message)
        # Send the task as the first event: a2a-sdk rejects updates of an unknown task.
        await queue.enqueue_event(task)
    await updater.start_work()
    return updater


def _updater(request: Request, queue: EventQueue) -> TaskUpdater:
    # Take the context id from the current task: a message may name only the task and not its context.
    task = request.current_task
    context_id = task.context_id if task is not None else request.context_id
    return TaskUpdater(queue, request.task_id or "", context_id or "")
