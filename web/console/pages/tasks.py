"""The pages of tasks: the tasks of all agents, the timeline of one task, messages to its agent, and cancellation."""

from uuid import UUID

from flask import Response

from shared.a2a.agents.directory import authorize
from shared.a2a.agents.extensions import require as require_extensions
from shared.a2a.tasks.administration import list_organization_tasks
from shared.a2a.tasks.cancellation import cancel_task
from shared.a2a.tasks.submission import MessageSubmission
from shared.a2a.tasks.timeline import find_task, read_timeline
from shared.a2a.types import (
    Message,
    MessageRole,
    Part,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskState,
)
from shared.identity.access.permissions import Permission
from shared.ids import new_id
from web.a2a.message_acceptance import accept_message
from web.console.declarations import ConsoleRoutes, go_to
from web.console.forms import invalid_field, require
from web.console.page_context import PageContext
from web.console.queries import ROWS, FilterText
from web.http.wire_types import RequestModel

routes = ConsoleRoutes("tasks")

PAGE = "/console/tasks"
_STATES = {state.value.removeprefix("TASK_STATE_").lower(): state for state in TaskState}


class TasksQuery(RequestModel):
    """The filter of tasks. The cursor belongs to the domain's list, and is not an id."""

    cursor: FilterText = ""
    state: FilterText = ""


@routes.page(
    "/tasks",
    title="Tasks",
    permission=Permission.TASK_READ,
    navigation="/agents",
    summary="List the tasks of all agents, last changed first",
    query=TasksQuery,
)
def show_tasks(context: PageContext) -> Response:
    query: TasksQuery = context.call.query
    if query.state and query.state not in _STATES:
        raise invalid_field("state", f"must be one of {', '.join(_STATES)}")
    with context.services.database.autocommit() as session:
        listed = list_organization_tasks(
            session,
            actor=context.actor,
            organization_id=context.organization_id,
            state=_STATES.get(query.state),
            cursor=query.cursor or None,
            limit=ROWS,
        )
        labels = context.labels(session, [at.deployment_id for at in listed.items])
    return context.render("tasks.html", listed=listed, labels=labels, query=query, states=list(_STATES))


@routes.page(
    "/tasks/<id:task_id>",
    title="Task",
    permission=None,
    navigation="/agents",
    summary="Show the timeline of a task, with the cost of its agent's calls",
)
def show_task(context: PageContext, task_id: UUID) -> Response:
    with context.services.database.autocommit() as session:
        # The page requires no permission: read_timeline() also lets members read the tasks of their own
        # messages.
        line = read_timeline(session, caller=context.caller, task_id=task_id)
        task = line.task
        labels = context.labels(session, [task.deployment_id, task.caller_id, task.principal_id])
    # While the task runs, htmx requests the timeline without the rest of the page.
    is_part = "HX-Request" in context.call.http.headers
    return context.render("task_line.html" if is_part else "task.html", line=line, task=task, labels=labels)


@routes.action(
    "/tasks/<id:task_id>/say",
    summary="Send a message in a task",
    rest="send_message_of_agent",
    command="agents talk",
)
def send_to_task(context: PageContext, task_id: UUID) -> Response:
    with context.services.database.autocommit() as session:
        task = find_task(session, caller=context.caller, task_id=task_id)
    return go_to(f"{PAGE}/{_send(context, task.deployment_id, task_id)}#end")


@routes.action(
    "/tasks/<id:task_id>/cancel",
    summary="Cancel a task",
    rest="cancel_task_of_agent",
    command="agents cancel",
)
def cancel(context: PageContext, task_id: UUID) -> Response:
    with context.services.database.transaction() as session:
        task = find_task(session, caller=context.caller, task_id=task_id)
        agent = context.services.agents.directory.get(task.deployment_id).agent
        cancel_task(session, authorize(context.caller, agent), task_id)
    # Notify after the commit: a worker that wakes up earlier would not find the cancellation request.
    context.services.agents.notifier.notify(task_id)
    return go_to(f"{PAGE}/{task_id}")


@routes.action(
    "/agents/<id:deployment_id>/talk",
    summary="Send a message to an agent",
    rest="send_message_of_agent",
    command="agents talk",
)
def start_task(context: PageContext, deployment_id: UUID) -> Response:
    return go_to(f"{PAGE}/{_send(context, deployment_id, None)}")


def _send(context: PageContext, deployment_id: UUID, task_id: UUID | None) -> UUID:
    """Send the message of the form. Return the task's id.

    The console acts as an A2A client that polls and activates no extension.
    """
    agents = context.services.agents
    known = agents.directory.get(deployment_id)
    agent = known.agent
    scope = authorize(context.caller, agent)
    # The console activates no extension. If the agent requires extensions, the error names them.
    require_extensions(known.declared, ())
    message = Message(
        message_id=str(new_id()),
        task_id=None if task_id is None else str(task_id),
        role=MessageRole.USER,
        parts=(Part(text=require(context.form, "message")),),
    )
    # Raise a scripted error before the message is accepted, so that no task is left behind.
    agents.script_errors.check(agent.choose_behavior(None), message)
    request = SendMessageRequest(
        # No thread waits for the agent, because the page polls the timeline.
        message=message,
        configuration=SendMessageConfiguration(return_immediately=True),
    )
    sending = MessageSubmission(request=request, agent=agent, scope=scope, caller=context.caller)
    return accept_message(context.services, sending).task_id
