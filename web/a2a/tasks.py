"""Get, list and subscribe to the tasks that the caller may read, and cancel the caller's own tasks.

For a task that the caller may not read, the response is the same as for a task that does not exist.
"""

from flask import Response

from shared.a2a.errors import TaskNotCancelable, TaskNotFound, TooManyStreams, UnsupportedOperation
from shared.a2a.tasks.cancellation import cancel_task as cancel
from shared.a2a.tasks.listing import list_tasks as list_page
from shared.a2a.tasks.snapshots import find_snapshot
from shared.a2a.types import CancelTaskRequest, ListTasksResponse, StreamResponse, Task
from web.a2a.protocol_routes import AgentCall, AgentRoutes, require_task_id, respond
from web.a2a.queries import TaskListQuery, TaskReadQuery
from web.a2a.streams import stream_task
from web.http.requests import MalformedJson

routes = AgentRoutes("agents")


@routes.agent_route(
    "GET",
    "/tasks/<task:task_id>",
    summary="Get a task: its status, artifacts and history",
    query=TaskReadQuery,
    response=Task,
    errors=(TaskNotFound,),
)
def read_task(call: AgentCall, task_id: str) -> Response:
    query = call.read_query(TaskReadQuery)
    found = require_task_id(task_id)
    with call.context.services.database.autocommit() as session:
        snapshot = find_snapshot(session, call.readable, found, history_length=query.history_length)
    if snapshot is None:
        raise TaskNotFound
    return respond(call, call.services.links.with_links(found, snapshot.task.to_wire()))


@routes.agent_route(
    "GET",
    "/tasks",
    summary="List the tasks of this agent that the caller may read, the last changed first",
    query=TaskListQuery,
    response=ListTasksResponse,
)
def list_tasks(call: AgentCall) -> Response:
    wanted = call.read_query(TaskListQuery).wanted()
    with call.context.services.database.autocommit() as session:
        page = list_page(session, call.readable, wanted)
    wire = page.to_wire()
    links = call.services.links
    # Add links to the wire form, because they are not stored with a task.
    pairs = zip(page.tasks, wire["tasks"], strict=True)
    return respond(
        call, wire | {"tasks": [links.with_links(require_task_id(task.id), at) for task, at in pairs]}
    )


@routes.agent_route(
    "POST",
    "/tasks/<task:task_id>:cancel",
    summary="Cancel a task; the body is optional",
    response=Task,
    errors=(TaskNotFound, TaskNotCancelable, MalformedJson),
)
def cancel_task(call: AgentCall, task_id: str) -> Response:
    # Read the body only to refuse a malformed one: no field of it is used.
    call.read_body(CancelTaskRequest)
    found = require_task_id(task_id)
    with call.context.services.database.transaction() as session:
        # Use `scope` and not `readable`: a caller who may only read a task must not cancel it.
        task = cancel(session, call.scope, found)
    # Notify after the commit: a worker that wakes up earlier would not find the cancellation request.
    call.services.notifier.notify(found)
    return respond(call, call.services.links.with_links(found, task.to_wire()))


@routes.agent_route(
    "POST",
    "/tasks/<task:task_id>:subscribe",
    summary="Subscribe to a task that has not ended: its current state, then its updates until it ends",
    response=StreamResponse,
    is_stream=True,
    errors=(TaskNotFound, UnsupportedOperation, TooManyStreams),
)
def subscribe_to_task(call: AgentCall, task_id: str) -> Response:
    return stream_task(call, require_task_id(task_id))


@routes.agent_route(
    "GET",
    "/tasks/<task:task_id>:subscribe",
    summary="Subscribe to a task by GET, which the protocol's HTTP annotations define",
    response=StreamResponse,
    is_stream=True,
    errors=(TaskNotFound, UnsupportedOperation, TooManyStreams),
)
def follow_task(call: AgentCall, task_id: str) -> Response:
    return stream_task(call, require_task_id(task_id))
