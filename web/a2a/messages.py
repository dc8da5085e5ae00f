"""Send a message to an agent, and wait for its answer or follow it."""

import contextlib
import time
from collections.abc import Collection
from functools import partial
from uuid import UUID

from flask import Response

from shared.a2a import errors
from shared.a2a.agents.directory import SKILL_KEY
from shared.a2a.agents.extensions import check_data, require
from shared.a2a.tasks.responses import find_response, wait_for_response
from shared.a2a.tasks.snapshots import read_snapshot
from shared.a2a.tasks.submission import AcceptedMessage, MessageSubmission, show_task
from shared.a2a.types import Message, SendMessageRequest, SendMessageResponse, StreamResponse
from web.a2a.extensions import requested_extensions
from web.a2a.message_acceptance import accept_message
from web.a2a.protocol_routes import AgentCall, AgentRoutes, answer
from web.a2a.streams import stream_answer
from web.framework.deferred_responses import PendingResponse, ResponseGenerator, respond_when_ready
from web.framework.revocation import until_revoked

routes = AgentRoutes("agents")

IDEMPOTENCY_HEADER = "Idempotency-Key"
LOOK_SECONDS = 10.0
"""A send that waits looks at its turn so often, although no hint has come."""
_SENDING = (
    errors.TaskNotFound,
    errors.UnsupportedOperation,
    errors.ContentTypeNotSupported,
    errors.InvalidAgentResponse,
    errors.ExtensionSupportRequired,
    errors.PushNotificationNotSupported,
    errors.IdempotencyKeyReused,
    errors.TooManyStreams,
)


@routes.agent_route(
    "POST",
    "/message:send",
    summary="Send a message and wait for its answer, a task or a message",
    description=(
        "The answer is given when the task has ended or waits for its client, at once with "
        "`returnImmediately`, and after `A2A_WAIT_SECONDS` with the task as it is. With an "
        "`Idempotency-Key` the same message is taken once."
    ),
    body=SendMessageRequest,
    response=SendMessageResponse,
    errors=_SENDING,
)
def send_message(call: AgentCall) -> Response:
    request = call.read_body(SendMessageRequest)
    configuration = request.configuration
    if configuration is not None and configuration.return_immediately:
        sent = _send(call, _sending(call, request))
        return _linked(call, sent.task_id, SendMessageResponse(task=sent.snapshot.task))
    history_length = configuration.history_length if configuration is not None else None
    pending = PendingResponse(
        call.http.environ,
        idle_seconds=LOOK_SECONDS,
        is_blocking=True,
        deadline=time.monotonic() + call.checked.services.settings.a2a_wait_seconds,
    )
    steps = _answering(call, _sending(call, request), history_length, pending)
    return respond_when_ready(until_revoked(steps, call.watch, pending.wake_up.notify), pending)


@routes.agent_route(
    "POST",
    "/message:stream",
    summary="Send a message and stream its answer: the task and then its updates, or one message",
    description=(
        "The stream ends when the task has ended or waits for its client. A client that loses it "
        "subscribes to the task."
    ),
    body=SendMessageRequest,
    response=StreamResponse,
    is_stream=True,
    errors=_SENDING,
)
def stream_message(call: AgentCall) -> Response:
    request = call.read_body(SendMessageRequest)
    return stream_answer(call, partial(_send, call, _sending(call, request)))


def _sending(call: AgentCall, request: SendMessageRequest) -> MessageSubmission:
    requested = requested_extensions()
    return MessageSubmission(
        request=request,
        agent=call.agent,
        scope=call.scope,
        caller=call.checked.caller,
        requested_extensions=requested,
        active_extensions=call.active,
        check_with_agent=partial(_check_with_agent, call, request.message, requested),
        idempotency_key=call.http.headers.get(IDEMPOTENCY_HEADER),
    )


def _check_with_agent(call: AgentCall, message: Message, requested: Collection[str]) -> None:
    require(call.declared, call.active, requested)
    check_data(message, call.active, call.services.directory.own)
    skill_id = (message.metadata or {}).get(SKILL_KEY)
    call.services.script_errors.check(call.agent.choose_behavior(skill_id), message)


def _send(call: AgentCall, sending: MessageSubmission) -> AcceptedMessage:
    return accept_message(call.checked.services, sending)


def _answering(
    call: AgentCall, sending: MessageSubmission, history_length: int | None, pending: PendingResponse
) -> ResponseGenerator:
    """Send, and wait until the turn is done, for as long as that is worth it."""
    # Before anything is taken that is tried again: room. Before the turn is there: the watch that hears of its end.
    watches = call.services.watch
    with call.services.slots.hold(call.checked.admission.key), contextlib.ExitStack() as watching:
        watch = watching.enter_context(watches.watch(sending.task_id, pending.wake_up))
        sent = _send(call, sending)
        turn_id, task_id, is_replay = sent.turn_id, sent.task_id, sent.is_replay
        del sending, sent  # and with them the message, which may be long
        if task_id != watch.task_id:
            watch = watching.enter_context(watches.watch(task_id, pending.wake_up))
        answered = yield from wait_for_response(
            call.checked.services.database,
            watch,
            turn_id,
            history_length=history_length,
            is_over=lambda: pending.is_over,
            wait_seconds=pending.seconds,
            reads_first=is_replay,
        )
    body = answered.body if answered is not None else _shown(call, turn_id, task_id, history_length)
    yield _linked(call, task_id, body)


def _shown(call: AgentCall, turn_id: UUID, task_id: UUID, history_length: int | None) -> SendMessageResponse:
    """Give the task as it is, or what it was answered with at the last moment. Raises InvalidAgentResponse."""
    with call.checked.services.database.transaction() as session:
        if not show_task(session, task_id):
            answered = find_response(session, turn_id, history_length=history_length)
            if answered is not None:
                return answered.body
        snapshot = read_snapshot(session, task_id, history_length=history_length)
        return SendMessageResponse(task=snapshot.task)


def _linked(call: AgentCall, task_id: UUID, body: SendMessageResponse) -> Response:
    return answer(call, call.services.links.with_links(task_id, body.to_wire()))
