"""The JSON-RPC binding: `POST` to an agent's base URL, with the operation in `method`.

This module adds method names and envelopes (`rpc_envelopes.py`) to the handlers of the HTTP+JSON binding. The
module adds no operation. Headers have the same meaning in both bindings.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

from flask import Response
from pydantic import Field

from shared.a2a import errors
from shared.a2a.wire import A2A
from web.a2a.cards import read_extended_agent_card
from web.a2a.messages import send_message, stream_message
from web.a2a.protocol_routes import AGENT_PREFIX, REFUSALS, AgentHandler, AgentRoutes, open_agent_call
from web.a2a.push_configurations import (
    create_push_configuration,
    delete_push_configuration,
    list_push_configurations,
    read_push_configuration,
)
from web.a2a.rpc_envelopes import MethodNotFound, read_rpc_request
from web.a2a.tasks import cancel_task, list_tasks, read_task, subscribe_to_task
from web.framework.authentication import Authentication
from web.framework.calls import RequestContext
from web.framework.routes import AnyQuery

routes = AgentRoutes("agents")

_TASK = {"task_id": ("id", "id")}
_OF_TASK = {"task_id": ("taskId", "task_id")}
_CONFIGURATION = {**_OF_TASK, "config_id": ("id", "id")}
# For each method: the handler, and the parameters that the HTTP+JSON binding has in the path.
METHODS: Mapping[str, tuple[AgentHandler, Mapping[str, tuple[str, str]]]] = {
    "SendMessage": (send_message, {}),
    "SendStreamingMessage": (stream_message, {}),
    "GetTask": (read_task, _TASK),
    "ListTasks": (list_tasks, {}),
    "CancelTask": (cancel_task, _TASK),
    "SubscribeToTask": (subscribe_to_task, _TASK),
    "CreateTaskPushNotificationConfig": (create_push_configuration, _OF_TASK),
    "GetTaskPushNotificationConfig": (read_push_configuration, _CONFIGURATION),
    "ListTaskPushNotificationConfigs": (list_push_configurations, _OF_TASK),
    "DeleteTaskPushNotificationConfig": (delete_push_configuration, _CONFIGURATION),
    "GetExtendedAgentCard": (read_extended_agent_card, {}),
}


class RpcCall(A2A):
    """A JSON-RPC request: a method of A2A 1.0 and its parameters."""

    jsonrpc: Literal["2.0"]
    id: str | int | float | None
    method: Annotated[str, Field(description=f"One of {', '.join(METHODS)}.")]
    params: dict[str, Any] | None = None


class RpcError(A2A):
    """An error: a number, a message, and google.rpc details as in HTTP+JSON."""

    code: int
    message: str
    data: tuple[dict[str, Any], ...] = ()


class RpcResponse(A2A):
    """A JSON-RPC response: either a result or an error."""

    jsonrpc: Literal["2.0"]
    id: str | int | float | None
    result: dict[str, Any] | None = None
    error: RpcError | None = None


def call_agent(call: RequestContext, deployment_id: UUID | None = None) -> Response:
    """Parse a JSON-RPC request and call the handler of its method."""
    services = call.services
    rpc = read_rpc_request(call.read_small_body(services.settings.max_message_bytes))
    agent_call = open_agent_call(call, deployment_id, rpc=rpc)
    if rpc.method not in METHODS:
        raise MethodNotFound
    handler, names = METHODS[rpc.method]
    return handler(agent_call, **{name: rpc.require_text(*spellings) for name, spellings in names.items()})


for _path, _name in (("/", "call_default_agent"), (AGENT_PREFIX, "call_agent")):
    routes.route(
        "POST",
        _path,
        name=_name,
        summary="Send a JSON-RPC request to an agent",
        description=(
            "The operations of HTTP+JSON under their JSON-RPC names. Errors of the protocol have status 200 and are in "
            "the response's `error`; all others keep their status. `SendStreamingMessage` and `SubscribeToTask` return "
            "`text/event-stream`, where each event is a complete response. Batches and notifications are refused."
        ),
        authentication=Authentication.CALLER,
        query=AnyQuery,
        body=RpcCall,
        responses={200: {"application/json": RpcResponse, "text/event-stream": RpcResponse}},
        errors=(
            *REFUSALS,
            errors.TooManyStreams,
            errors.IdempotencyKeyReused,
        ),
    )(call_agent)
