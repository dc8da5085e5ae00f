"""Handle A2A requests: check a message before a task is created, and create only one task for each message.

If the service does not know whether the agent received a message, the service sends the message again with the same
`Idempotency-Key`. Without this header, the message id identifies a message. A repeated message returns the task that
exists already.
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
from quartermaster.agents.recent_tasks import ENDED, INTERRUPTED, TASK_ID_KEY
from quartermaster.agents.skills import SKILL_KEY, Skill, UnknownSkill, choose_skill

REMEMBERED_MESSAGES = 10_000
_Key = tuple[str, ...]


class Requests(DefaultRequestHandler):
    """Handles A2A requests, checks messages, and recognizes repeated messages."""

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
        self._task_ids: OrderedDict[_Key, asyncio.Future[str]] = OrderedDict()

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Message | Task:
        """Return the task of a message when the task has ended or requires input.

        Raises InvalidParamsError or ExtensionSupportRequiredError for a message that the agent does not accept.
        """
        # Check before the message is remembered: the sender may correct an invalid message and use the same key.
        self._check(params, context)
        key = _key(params, context)
        if key in self._task_ids:
            return await self._wait_for_task(self._task_ids[key], params, context)
        task_id_future = self._remember(key, context)
        try:
            response: Message | Task = await super().on_message_send(params, context)
        # Do not catch BaseException: if the client disconnects, the task continues, and a repetition must find it.
        except Exception as error:
            self._forget(key, task_id_future, error)
            raise
        return response

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a message's task. Raises the same errors as `on_message_send`."""
        self._check(params, context)
        key = _key(params, context)
        if key in self._task_ids:
            async for event in self._follow(await asyncio.shield(self._task_ids[key]), context):
                yield event
            return
        task_id_future = self._remember(key, context)
        try:
            async for event in super().on_message_send_stream(params, context):
                yield event
        except Exception as error:
            self._forget(key, task_id_future, error)
            raise

    def _check(self, params: SendMessageRequest, context: ServerCallContext) -> None:
        if self._needs_context and request_context.current() is None:
            raise InvalidParamsError(
                "The request has no Service-Usage-Attribution, which a message requires."
            )
        missing = find_missing(self._declared, context.requested_extensions)
        if missing:
            named = ", ".join(missing)
            raise ExtensionSupportRequiredError(
                f"The agent requires {named}; list them in A2A-Extensions.", data={"extensions": named}
            )
        if not params.message.parts:
            raise InvalidParamsError("The message has no parts.")
        try:
            choose_skill(self._skills, MessageToDict(params.message.metadata).get(SKILL_KEY))
        except UnknownSkill as error:
            raise InvalidParamsError(str(error)) from error

    def _remember(self, key: _Key, context: ServerCallContext) -> asyncio.Future[str]:
        task_id_future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        context.state[TASK_ID_KEY] = self._task_ids[key] = task_id_future
        while len(self._task_ids) > REMEMBERED_MESSAGES:
            self._task_ids.popitem(last=False)
        return task_id_future

    def _forget(self, key: _Key, task_id_future: asyncio.Future[str], error: Exception) -> None:
        """Forget a message that created no task, so that the sender can send the message again."""
        if not task_id_future.done():
            self._task_ids.pop(key, None)
            task_id_future.set_exception(error)
            task_id_future.exception()  # mark as retrieved: otherwise asyncio logs that no task awaits the exception

    async def _wait_for_task(
        self, task_id_future: asyncio.Future[str], params: SendMessageRequest, context: ServerCallContext
    ) -> Task:
        # Shield the future, which belongs to the first message: cancelling a repeated message must not cancel it.
        task_id = await asyncio.shield(task_id_future)
        if not params.configuration.return_immediately:
            async for _ in self._follow(task_id, context):
                pass
        request = GetTaskRequest(id=task_id)
        if params.configuration.HasField("history_length"):
            request.history_length = params.configuration.history_length
        return await self._get(request, context)

    async def _follow(self, task_id: str, context: ServerCallContext) -> AsyncGenerator[Event, None]:
        """Yield a task, then the task's events until the task ends or requires input."""
        try:
            async for event in self.on_subscribe_to_task(SubscribeToTaskRequest(id=task_id), context):
                # Check before the yield: the first event is the task object itself, which may change during the yield.
                is_last = _is_final(event)
                yield event
                if is_last:
                    return
        except UnsupportedOperationError:  # a2a-sdk raises this if the task has ended already
            yield await self._get(GetTaskRequest(id=task_id), context)

    async def _get(self, request: GetTaskRequest, context: ServerCallContext) -> Task:
        task: Task | None = await self.on_get_task(request, context)
        if task is None:
            raise UnsupportedOperationError("The agent no longer has the task; ask the service for it.")
        return task


def _is_final(event: Event) -> bool:
    return isinstance(event, (Task, TaskStatusUpdateEvent)) and event.status.state in ENDED | INTERRUPTED


def _key(params: SendMessageRequest, context: ServerCallContext) -> _Key:
    headers = context.state.get("headers", {})
    named = headers.get("idempotency-key")
    if named:
        # The first member separates idempotency keys from message ids, because a sender may choose equal values.
        return ("key", named)
    message = params.message
    return ("message", message.context_id, message.task_id, message.message_id)
