"""The handler of A2A requests: what is checked before a task is made, and that one message makes one task.

The service sends a message again when it does not know whether the agent got it, with the same `Idempotency-Key`;
others are known by their messageId. The repetition is answered with the task that the first one made.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.events import Event
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.types import (
    GetTaskRequest,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import ExtensionSupportRequiredError, InvalidParamsError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict

from quartermaster import context as request_context
from quartermaster.agents.extensions import Extension, find_missing
from quartermaster.agents.recent_tasks import ENDED, MADE_KEY, PAUSED
from quartermaster.agents.skills import SKILL_KEY, Skill, UnknownSkill, choose_skill

REMEMBERED_MESSAGES = 10_000
_Key = tuple[str, ...]


class Requests(DefaultRequestHandler):
    """Answers requests; messages are checked and recognized first."""

    def __init__(
        self,
        *,
        skills: Mapping[str, Skill],
        declared: Sequence[Extension],
        needs_context: bool,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self._skills = skills
        self._declared = declared
        self._needs_context = needs_context
        self._made: OrderedDict[_Key, asyncio.Future[str]] = OrderedDict()

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Message | Task:
        """Answer a message with its task, when that has ended or waits for input."""
        self._check(params, context)
        key = _key(params, context)
        if key in self._made:
            return await self._give_made(self._made[key], params, context)
        made = self._remember(key, context)
        try:
            answer: Message | Task = await super().on_message_send(params, context)
        except Exception as error:
            self._forget(key, made, error)
            raise
        return answer

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """Answer a message with the events of its task."""
        self._check(params, context)
        key = _key(params, context)
        if key in self._made:
            async for event in self._follow(await asyncio.shield(self._made[key]), context):
                yield event
            return
        made = self._remember(key, context)
        try:
            async for event in super().on_message_send_stream(params, context):
                yield event
        except Exception as error:
            self._forget(key, made, error)
            raise

    def _check(self, params: SendMessageRequest, context: ServerCallContext) -> None:
        if self._needs_context and request_context.current() is None:
            raise InvalidParamsError("The message came without Service-Usage-Attribution.")
        missing = find_missing(self._declared, context.requested_extensions)
        if missing:
            named = ", ".join(missing)
            raise ExtensionSupportRequiredError(f"The agent requires {named}.", data={"extensions": named})
        if not params.message.parts:
            raise InvalidParamsError("The message has no parts.")
        try:
            choose_skill(self._skills, MessageToDict(params.message.metadata).get(SKILL_KEY))
        except UnknownSkill as error:
            raise InvalidParamsError(str(error)) from error

    def _remember(self, key: _Key, context: ServerCallContext) -> asyncio.Future[str]:
        made: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        context.state[MADE_KEY] = self._made[key] = made
        while len(self._made) > REMEMBERED_MESSAGES:
            self._made.popitem(last=False)
        return made

    def _forget(self, key: _Key, made: asyncio.Future[str], error: Exception) -> None:
        """Let a message that made no task be sent again."""
        if not made.done():
            self._made.pop(key, None)
            made.set_exception(error)
            made.exception()  # it may be that nobody waits

    async def _give_made(
        self, made: asyncio.Future[str], params: SendMessageRequest, context: ServerCallContext
    ) -> Task:
        task_id = await asyncio.shield(made)
        if not params.configuration.return_immediately:
            async for _ in self._follow(task_id, context):
                pass
        request = GetTaskRequest(id=task_id)
        if params.configuration.HasField("history_length"):
            request.history_length = params.configuration.history_length
        return await self._get(request, context)

    async def _follow(self, task_id: str, context: ServerCallContext) -> AsyncGenerator[Event, None]:
        """Give the task as it is, then its events until it ends or waits."""
        try:
            async for event in self.on_subscribe_to_task(SubscribeToTaskRequest(id=task_id), context):
                # Judged before it is handed over: the first event is the task itself, which changes meanwhile.
                is_last = _says_the_end(event)
                yield event
                if is_last:
                    return
        except UnsupportedOperationError:  # it has ended
            yield await self._get(GetTaskRequest(id=task_id), context)

    async def _get(self, request: GetTaskRequest, context: ServerCallContext) -> Task:
        task: Task | None = await self.on_get_task(request, context)
        if task is None:
            raise UnsupportedOperationError("The task is gone.")
        return task


def _says_the_end(event: Event) -> bool:
    return isinstance(event, (Task, TaskStatusUpdateEvent)) and event.status.state in ENDED | PAUSED


def _key(params: SendMessageRequest, context: ServerCallContext) -> _Key:
    headers = context.state.get("headers", {})
    named = headers.get("idempotency-key")
    if named:
        return ("key", named)
    message = params.message
    return ("message", message.context_id, message.task_id, message.message_id)
