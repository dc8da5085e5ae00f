"""Send a message to an agent, and wait for its answer or follow it."""

import time
from collections.abc import Callable, Generator
from functools import partial

from flask import Response

from shared import failpoints
from shared.a2a import errors
from shared.a2a.agents.directory import SKILL_KEY
from shared.a2a.agents.extensions import check_data, require
from shared.a2a.tasks.following import TurnState, read_reply, read_turn_state, wait_for_turn
from shared.a2a.tasks.sending import Sending, Sent, send, show_task
from shared.a2a.tasks.snapshots import read_snapshot
from shared.a2a.types import SendMessageRequest, SendMessageResponse
from shared.body_errors import ContentTooLarge, UploadTimeout
from web.a2a.protocol_routes import AgentCall, AgentRoutes, answer
from web.a2a.streams import stream_answer
from web.holding import Steps, Waiting, answer_whole
from web.http.requests import MalformedJson
from web.revocation import until_revoked

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
    MalformedJson,
    ContentTooLarge,
    UploadTimeout,
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
    answers={200: SendMessageResponse},
    errors=_SENDING,
)
def send_message(call: AgentCall) -> Response:
    request = _read(call)
    configuration = request.configuration
    if configuration is not None and configuration.return_immediately:
        sent = _send(call, request)
        return _linked(call, sent, SendMessageResponse(task=sent.snapshot.task))
    history_length = configuration.history_length if configuration is not None else None
    waiting = Waiting(
        call.http.environ,
        idle_seconds=LOOK_SECONDS,
        is_blocking=True,
        deadline=time.monotonic() + call.checked.services.settings.a2a_wait_seconds,
    )
    steps = _answering(call, partial(_send, call, request), history_length, waiting)
    return answer_whole(until_revoked(steps, call.watch, waiting.bell.ring), waiting)


@routes.agent_route(
    "POST",
    "/message:stream",
    summary="Send a message and stream its answer: the task and then its updates, or one message",
    description=(
        "The stream ends when the task has ended or waits for its client. A client that loses it "
        "subscribes to the task."
    ),
    body=SendMessageRequest,
    answers={200: "text/event-stream"},
    errors=_SENDING,
)
def stream_message(call: AgentCall) -> Response:
    request = _read(call)
    return stream_answer(call, partial(_send, call, request))


def _read(call: AgentCall) -> SendMessageRequest:
    require(call.declared, call.active)
    services, request = call.services, call.read_body(SendMessageRequest)
    check_data(request.message, call.active, services.directory.own)
    skill_id = (request.message.metadata or {}).get(SKILL_KEY)
    services.refusals.check(call.agent.choose_behavior(skill_id), request.message)
    return request


def _send(call: AgentCall, request: SendMessageRequest) -> Sent:
    sending = Sending(
        request=request,
        agent=call.agent,
        scope=call.scope,
        caller=call.checked.caller,
        active_extensions=call.active,
        idempotency_key=call.http.headers.get(IDEMPOTENCY_HEADER),
    )
    with call.checked.services.database.transaction() as session:
        sent = send(session, sending, call.services.pushes)
    failpoints.hit("send.committed")
    call.services.hints.tell(sent.task_id)
    return sent


def _answering(
    call: AgentCall, send: Callable[[], Sent], history_length: int | None, waiting: Waiting
) -> Steps:
    """Send, and wait until the turn is done, for as long as that is worth it."""
    with call.services.slots.hold(call.checked.admission.key):  # before anything is taken that is tried again
        sent = send()
        del send  # and with it the message, which may be long
        state = yield from _turn(call, sent, waiting)
    yield _linked(call, sent, _answered(call, sent, state, history_length))


def _turn(call: AgentCall, sent: Sent, waiting: Waiting) -> Generator[None, None, TurnState]:
    database, deadline = call.checked.services.database, waiting.deadline
    with call.services.watch.watch(sent.task_id, waiting.bell) as watch:
        for state in wait_for_turn(
            database, watch, sent.turn_id, deadline=deadline, wait_seconds=waiting.seconds
        ):
            if state is not None:
                return state
            yield None
    raise RuntimeError("a wait ended without its end")


def _answered(
    call: AgentCall, sent: Sent, state: TurnState, history_length: int | None
) -> SendMessageResponse:
    """Give the message, or the task as it is. Raises InvalidAgentResponse."""
    with call.checked.services.database.transaction() as session:
        if not state.is_done and not show_task(session, sent.task_id):
            state = read_turn_state(session, sent.turn_id)  # it was answered at the last moment
        if state.reply is not None:
            return SendMessageResponse(message=read_reply(session, sent.task_id, state.reply))
        snapshot = read_snapshot(session, sent.task_id, history_length=history_length)
        return SendMessageResponse(task=snapshot.task)


def _linked(call: AgentCall, sent: Sent, body: SendMessageResponse) -> Response:
    return answer(call, call.services.links.with_links(sent.task_id, body.to_wire()))
