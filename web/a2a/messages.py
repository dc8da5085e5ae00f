"""Send a message to an agent. Wait for the response, or stream it."""

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
from web.a2a.protocol_routes import AgentCall, AgentRoutes, respond
from web.a2a.streams import stream_message_response
from web.framework.deferred_responses import PendingResponse, ResponseGenerator, respond_when_ready
from web.framework.revocation import until_revoked

routes = AgentRoutes("agents")

IDEMPOTENCY_HEADER = "Idempotency-Key"
# A waiting request checks its turn this often, in case a wake-up message is lost.
POLL_SECONDS = 10.0
_SEND_ERRORS = (
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
    summary="Send a message and wait for the response, a task or a message",
    description=(
        "The response is sent when the task has ended or needs input from the client, at once with "
        "`returnImmediately`, and after `A2A_WAIT_SECONDS` with the current task. A message that is repeated "
        "with the same `Idempotency-Key` is accepted once."
    ),
    body=SendMessageRequest,
    response=SendMessageResponse,
    errors=_SEND_ERRORS,
)
def send_message(call: AgentCall) -> Response:
    request = call.read_body(SendMessageRequest)
    configuration = request.configuration
    if configuration is not None and configuration.return_immediately:
        accepted = _send(call, _submission(call, request))
        return _respond(call, accepted.task_id, SendMessageResponse(task=accepted.snapshot.task))
    history_length = configuration.history_length if configuration is not None else None
    pending = PendingResponse(
        call.http.environ,
        idle_seconds=POLL_SECONDS,
        is_blocking=True,
        deadline=time.monotonic() + call.context.services.settings.a2a_wait_seconds,
    )
    steps = _wait_for_turn(call, _submission(call, request), history_length, pending)
    return respond_when_ready(until_revoked(steps, call.watch, pending.wake_up.notify), pending)


@routes.agent_route(
    "POST",
    "/message:stream",
    summary="Send a message and stream the response: the task and then its updates, or one message",
    description=(
        "The stream ends when the task has ended or needs input from the client. A client that loses the "
        "connection subscribes to the task."
    ),
    body=SendMessageRequest,
    response=StreamResponse,
    is_stream=True,
    errors=_SEND_ERRORS,
)
def stream_message(call: AgentCall) -> Response:
    request = call.read_body(SendMessageRequest)
    return stream_message_response(call, partial(_send, call, _submission(call, request)))


def _submission(call: AgentCall, request: SendMessageRequest) -> MessageSubmission:
    requested = requested_extensions()
    return MessageSubmission(
        request=request,
        agent=call.agent,
        scope=call.scope,
        caller=call.context.caller,
        requested_extensions=requested,
        active_extensions=call.active,
        check_with_agent=partial(_check_with_agent, call, request.message, requested),
        idempotency_key=call.http.headers.get(IDEMPOTENCY_HEADER),
    )


def _check_with_agent(call: AgentCall, message: Message, requested: Collection[str]) -> None:
    require(call.declared, call.active, requested)
    check_data(message, call.active, call.services.directory.own)
    # The behavior that the message selects decides which errors its script returns.
    skill_id = (message.metadata or {}).get(SKILL_KEY)
    call.services.script_errors.check(call.agent.choose_behavior(skill_id), message)


def _send(call: AgentCall, submission: MessageSubmission) -> AcceptedMessage:
    return accept_message(call.context.services, submission)


def _wait_for_turn(
    call: AgentCall, submission: MessageSubmission, history_length: int | None, pending: PendingResponse
) -> ResponseGenerator:
    """Send the message. Wait until its turn has ended or the deadline has passed. Yield the response."""
    # Take the slot first, because an accepted message must not be refused. Then register the watch, so that
    # no event is missed.
    watches = call.services.watch
    with call.services.slots.hold(call.context.admission.key), contextlib.ExitStack() as watching:
        watch = watching.enter_context(watches.watch(submission.task_id, pending.wake_up))
        accepted = _send(call, submission)
        turn_id, task_id, is_replay = accepted.turn_id, accepted.task_id, accepted.is_replay
        del submission, accepted  # frees the message, which may be long
        # A repeated message belongs to the task of the first attempt.
        if task_id != watch.task_id:
            watch = watching.enter_context(watches.watch(task_id, pending.wake_up))
        answered = yield from wait_for_response(
            call.context.services.database,
            watch,
            turn_id,
            history_length=history_length,
            is_over=lambda: pending.is_over,
            wait_seconds=pending.seconds,
            reads_first=is_replay,
        )
    body = (
        answered.body if answered is not None else _current_response(call, turn_id, task_id, history_length)
    )
    yield _respond(call, task_id, body)


def _current_response(
    call: AgentCall, turn_id: UUID, task_id: UUID, history_length: int | None
) -> SendMessageResponse:
    """Return the current task. If the turn has just ended with a message, return that message.

    Raises InvalidAgentResponse.
    """
    with call.context.services.database.transaction() as session:
        # `show_task` returns False if the turn has just ended with a message, because then there is no task.
        if not show_task(session, task_id):
            answered = find_response(session, turn_id, history_length=history_length)
            if answered is not None:
                return answered.body
        snapshot = read_snapshot(session, task_id, history_length=history_length)
        return SendMessageResponse(task=snapshot.task)


def _respond(call: AgentCall, task_id: UUID, body: SendMessageResponse) -> Response:
    return respond(call, call.services.links.with_links(task_id, body.to_wire()))
