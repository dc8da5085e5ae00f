"""List the tasks of all agents of an organization, for its administrators."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from pydantic import Field

from shared.a2a.tasks.administration import list_organization_tasks as list_page
from shared.a2a.types import TaskState
from shared.pagination import DEFAULT_LIMIT, MAX_LIMIT
from web.a2a.queries import STATES
from web.framework.administration import ORGANIZATION, AdministrationRoutes
from web.framework.calls import JsonResponse, RequestContext
from web.http.schemas import PageResponse, ResponseModel
from web.http.wire_types import Between, Count, Id, RequestModel, Text, UtcTime

routes = AdministrationRoutes("agents")


class OrganizationTask(ResponseModel):
    """A task, without its messages and artifacts."""

    id: Id
    context_id: str
    organization_id: Id
    deployment_id: Id
    caller_id: Id = Field(description="The user or identity that sent the message.")
    principal_id: Id = Field(description="The identity for which the agent works.")
    distribution_id: Id | None
    state: TaskState
    status_at: UtcTime = Field(
        description="When the task entered this state, or its status was last updated."
    )
    created_at: UtcTime


class OrganizationTaskPage(PageResponse):
    """A page of tasks, the last changed first."""

    # The cursor is not an id, because the list is ordered by the time of the last change.
    next_cursor: str | None  # type: ignore[assignment]
    tasks: Sequence[OrganizationTask]


class OrganizationTaskQuery(RequestModel):
    """The parameters of the list of an organization's tasks."""

    state: Annotated[TaskState, Field(strict=False), STATES] | None = Field(
        default=None, description="Only tasks in this state."
    )
    deployment_id: Id | None = Field(default=None, description="Only tasks of this deployment's agent.")
    cursor: Annotated[str, Text(minimum=1, maximum=200)] | None = Field(
        default=None, description="The `nextCursor` of the previous page."
    )
    limit: Annotated[
        Count, Between(minimum=1, maximum=MAX_LIMIT), Field(description="Tasks on the page.")
    ] = DEFAULT_LIMIT


@routes.pages(
    f"{ORGANIZATION}/tasks",
    OrganizationTaskPage,
    OrganizationTaskQuery,
    summary="List the tasks of an organization's agents, the last changed first; needs TaskRead",
    description="To read a task's messages, get it from its agent; that requires the same permission.",
)
def list_organization_tasks(call: RequestContext, organization_id: UUID) -> JsonResponse:
    actor = call.actor
    query: OrganizationTaskQuery = call.query
    with call.services.database.transaction() as session:
        page = list_page(session, actor=actor, organization_id=organization_id, **query.model_dump())
    return JsonResponse(body=OrganizationTaskPage.of(page))
