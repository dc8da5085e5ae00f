"""Deliver a turn's message to its agent: once, as far as that can be known.

`sent_at` is stored before the request leaves, so a worker that takes over knows that the message may have arrived. For
a new turn, the statement that opens the turn stores `sent_at`. If the request cannot leave, or the agent responds that
it is busy, the message is sent again after growing pauses. If the connection breaks later, or the agent fails, the
message may have been received. Then the worker searches the agent's tasks for our message id. If two searches do not
find the message, it is sent again.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from shared import failpoints
from shared.a2a.remote.bindings import ErrorResponse
from shared.a2a.remote.connection import IDLE_SECONDS
from shared.a2a.remote.endpoints import Endpoint
from shared.a2a.remote.errors import AgentForgot, AgentRefused, AgentUnreachable, ReceiptUncertain
from shared.a2a.remote.remote_turn import RemoteTurn, RetryBudget
from shared.a2a.remote.response_parser import read_event
from shared.a2a.remote.task_recovery import find_received, message_id_of
from shared.a2a.types import MessageRole, Task
from shared.a2a.updates import Update
from shared.egress.errors import EgressError
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

# Limits the duplicates at an agent that does not list messages that it has received.
MAXIMUM_SENDS = 3
SEARCH_PAUSE_SECONDS = 2.0
"""The pause between two searches, because the agent may not list a message immediately after its arrival."""
_CANNOT_LIST = frozenset({400, 404, 405, 501})


def deliver(remote: RemoteTurn, endpoint: Endpoint) -> Iterator[Update]:
    """Send the message to the agent, and yield the updates of the response until the response ends.

    Raises AgentUnreachable, AgentRefused, AgentForgot, ReceiptUncertain, ResponseInvalid, ResponseTooLarge, Stopped.
    """
    is_sent = remote.sent.was_sent
    for _ in range(MAXIMUM_SENDS):
        found = _find(remote, endpoint) if is_sent else None
        if found is not None:
            remote.bind(found.id, found.context_id)
            return
        yield from _send(remote, endpoint)
        if remote.remote_task_id is not None or remote.is_settled:
            return
        is_sent = True
    raise ReceiptUncertain


def _send(remote: RemoteTurn, endpoint: Endpoint) -> Iterator[Update]:
    """Send the message. Retry only if the agent certainly has not received the message."""
    retries = RetryBudget(remote, remote.limits.retry_seconds)
    while True:
        remote.mark_sent()
        try:
            yield from _send_once(remote, endpoint)
            return
        except EgressError as error:
            remote.check()
            log.info("remote.broken", error=error.code, was_sent=error.was_sent)
            if error.was_sent or remote.remote_task_id is not None:
                return
            if not error.is_transient:
                raise AgentUnreachable(f"The agent could not be reached ({error.code}).") from error
            reason, at_least = error.code, error.retry_after_seconds
        except ErrorResponse as error:
            log.info("remote.refused", status=error.status, reason=error.reason)
            if error.is_broken or remote.remote_task_id is not None:
                return
            if not error.is_busy:
                raise agent_refused(error) from error
            reason, at_least = str(error.status), error.retry_after_seconds
        # The agent certainly has not received the message, so a worker that takes over must not search for it.
        remote.rows.mark_unsent(remote.turn)
        retries.pause(reason, at_least_seconds=at_least)


def _send_once(remote: RemoteTurn, endpoint: Endpoint) -> Iterator[Update]:
    request, binding = _request(remote, is_answered_at_once=not endpoint.streams), remote.connection.binding
    call = binding.stream(request) if endpoint.streams else binding.send(request)
    idle_seconds = IDLE_SECONDS if endpoint.streams else remote.limits.silence_seconds
    # If the agent supports this header, it accepts the message once, even if it is sent again.
    key = {"Idempotency-Key": str(remote.turn.id)}
    failpoints.hit("remote.marked")
    with remote.connection.stream(call, idle_seconds=idle_seconds, headers=key) as results:
        for result in results:
            failpoints.hit("remote.heard")
            yield from remote.apply_event(read_event(result))
            if remote.is_settled:
                return


def _request(remote: RemoteTurn, *, is_answered_at_once: bool) -> Mapping[str, Any]:
    """Return the request body. The task id and context id are those at the agent; the message id is derived here."""
    turn = remote.turn
    message = turn.message.model_copy(
        update={
            "message_id": message_id_of(turn.id),
            "context_id": remote.sent.context_id,
            "task_id": remote.sent.earlier_task_id,
            "role": MessageRole.USER,
            "reference_task_ids": (),
        }
    )
    configuration: dict[str, Any] = {"historyLength": 0}
    if turn.accepted_output_modes:
        configuration["acceptedOutputModes"] = list(turn.accepted_output_modes)
    if is_answered_at_once:
        configuration["returnImmediately"] = True
    request: dict[str, Any] = {"message": message.to_wire(), "configuration": configuration}
    if turn.request_metadata:
        request["metadata"] = dict(turn.request_metadata)
    return request


def _find(remote: RemoteTurn, endpoint: Endpoint) -> Task | None:
    """Return the agent's task that contains the message, or None if the agent has not received the message."""
    retries = RetryBudget(remote, remote.limits.silence_seconds)
    searches = 0
    while True:
        try:
            found = _search(remote)
        except ErrorResponse as error:
            if not (error.is_busy or error.is_broken):
                # The agent cannot list its tasks. The administrator accepts duplicates (`resends`), so send again.
                if endpoint.resends:
                    return None
                raise _search_failed(remote, error) from error
            retries.pause(error.status, at_least_seconds=error.retry_after_seconds)
            continue
        except EgressError as error:
            remote.check()
            retries.pause(error.code)
            continue
        searches += 1
        if found is not None or searches > 1:
            return found
        remote.pause(SEARCH_PAUSE_SECONDS)


def _search(remote: RemoteTurn) -> Task | None:
    return find_received(
        remote.connection,
        message_id_of(remote.turn.id),
        context_id=remote.sent.context_id,
        earlier_task_id=remote.sent.earlier_task_id,
    )


def _search_failed(remote: RemoteTurn, error: ErrorResponse) -> Exception:
    if remote.sent.earlier_task_id is not None and error.status == 404:  # noqa: PLR2004 (not found)
        return AgentForgot()
    return ReceiptUncertain() if error.status in _CANNOT_LIST else agent_refused(error)


def agent_refused(error: ErrorResponse) -> AgentRefused:
    """Return the error for a refusal. Its text has the protocol's reason, and no text of the agent."""
    return AgentRefused(f"The agent refused the message ({error.reason or error.status}).")
