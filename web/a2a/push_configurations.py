"""Administer the push notification configurations of a task: the URLs that receive the task's updates."""

from uuid import UUID

from flask import Response

from shared.a2a.errors import PushNotificationNotSupported, TaskNotFound
from shared.a2a.tasks.snapshots import find_snapshot
from shared.a2a.types import Empty, ListTaskPushNotificationConfigsResponse, TaskPushNotificationConfig
from shared.db.database import Session
from web.a2a.protocol_routes import AgentCall, AgentRoutes, require_task_id, respond
from web.a2a.queries import PageQuery

routes = AgentRoutes("agents")

DEFAULT_PAGE = 50
_COLLECTION = "/tasks/<task:task_id>/pushNotificationConfigs"
_ERRORS = (TaskNotFound, PushNotificationNotSupported)


@routes.agent_route(
    "POST",
    _COLLECTION,
    summary="Create a push notification configuration of a task; its credentials are never returned",
    body=TaskPushNotificationConfig,
    response=TaskPushNotificationConfig,
    errors=_ERRORS,
)
def create_push_configuration(call: AgentCall, task_id: str) -> Response:
    call.services.pushes.require_support()
    wanted = call.read_body(TaskPushNotificationConfig)
    with call.context.services.database.transaction() as session:
        found = _require_task(session, call, task_id)
        created = call.services.pushes.create(session, found, wanted)
    # Return `created`, which has no credentials: they are stored encrypted and never returned.
    return respond(call, created)


@routes.agent_route(
    "GET",
    _COLLECTION,
    summary="List the push notification configurations of a task",
    query=PageQuery,
    response=ListTaskPushNotificationConfigsResponse,
    errors=_ERRORS,
)
def list_push_configurations(call: AgentCall, task_id: str) -> Response:
    call.services.pushes.require_support()
    query = call.read_query(PageQuery)
    with call.context.services.database.transaction() as session:
        found = _require_task(session, call, task_id)
        configs, token = call.services.pushes.list_page(
            session, found, size=query.page_size or DEFAULT_PAGE, token=query.page_token
        )
    return respond(call, ListTaskPushNotificationConfigsResponse(configs=configs, next_page_token=token))


@routes.agent_route(
    "GET",
    f"{_COLLECTION}/<path:config_id>",
    summary="Get a push notification configuration of a task",
    response=TaskPushNotificationConfig,
    errors=_ERRORS,
)
def read_push_configuration(call: AgentCall, task_id: str, config_id: str) -> Response:
    call.services.pushes.require_support()
    with call.context.services.database.transaction() as session:
        found = _require_task(session, call, task_id)
        config = call.services.pushes.get(session, found, config_id)
    return respond(call, config)


@routes.agent_route(
    "DELETE",
    f"{_COLLECTION}/<path:config_id>",
    summary="Delete a push notification configuration of a task; no error if there is none",
    response=Empty,
    errors=_ERRORS,
)
def delete_push_configuration(call: AgentCall, task_id: str, config_id: str) -> Response:
    call.services.pushes.require_support()
    with call.context.services.database.transaction() as session:
        found = _require_task(session, call, task_id)
        call.services.pushes.delete(session, found, config_id)
    return respond(call, Empty())


def _require_task(session: Session, call: AgentCall, task_id: str) -> UUID:
    found = require_task_id(task_id)
    # Search only the caller's own tasks: a caller who may only read a task must not receive its updates.
    if find_snapshot(session, call.scope, found, history_length=0) is None:
        raise TaskNotFound
    return found
