"""The pages of agents: the deployments of an organization, with their endpoint, behaviors, schedules and tasks."""

from uuid import UUID

from flask import Response

from shared.a2a.behaviors.administration import list_behaviors
from shared.a2a.remote.cards.endpoint_check import EndpointReport
from shared.a2a.remote.cards.endpoint_check import check_endpoint as check
from shared.a2a.remote.endpoints import ShownEndpoint, get_endpoint
from shared.a2a.schedules.administration import list_schedules
from shared.a2a.tasks.administration import list_organization_tasks
from shared.db.database import Session
from shared.identity.access.permissions import Permission
from shared.identity.directory.deployments import (
    disable_deployment,
    enable_deployment,
    get_deployment,
    list_deployments,
)
from shared.identity.errors import ResourceNotFound
from web.console.declarations import ConsoleRoutes
from web.console.navigation import Group
from web.console.page_context import PageContext
from web.console.queries import CursorQuery

routes = ConsoleRoutes("agents")

PAGE = "/console/agents"
_TASKS = 20


@routes.page(
    "/agents",
    title="Agents",
    permission=Permission.ORGANIZATION_READ,
    navigation=Group.AGENTS,
    summary="List deployments",
    query=CursorQuery,
)
def show_agents(context: PageContext) -> Response:
    with context.services.database.autocommit() as session:
        listed = list_deployments(
            session,
            actor=context.actor,
            organization_id=context.organization_id,
            **context.call.query.position,
        )
        labels = context.labels(session, [at.daemon_identity_id for at in listed.items])
    return context.render("agents.html", listed=listed, labels=labels)


@routes.page(
    "/agents/<id:deployment_id>",
    title="Agent",
    permission=Permission.ORGANIZATION_READ,
    navigation="/agents",
    summary="Show a deployment with its endpoint and behaviors",
)
def show_agent(context: PageContext, deployment_id: UUID) -> Response:
    return _show_agent(context, deployment_id)


@routes.action(
    "/agents/<id:deployment_id>/endpoint/check",
    summary="Check the endpoint of a deployment",
    rest="check_endpoint",
    command="endpoints check",
)
def check_endpoint(context: PageContext, deployment_id: UUID) -> Response:
    services = context.services
    report = check(
        services.database,
        services.signing_keys,
        services.settings,
        actor=context.actor,
        deployment_id=deployment_id,
    )
    # The report is shown once, so respond with the page and no redirect.
    return _show_agent(context, deployment_id, report)


def _show_agent(context: PageContext, deployment_id: UUID, report: EndpointReport | None = None) -> Response:
    may_manage = context.holds(Permission.DEPLOYMENT_MANAGE)
    with context.services.database.autocommit() as session:
        deployment = get_deployment(session, actor=context.actor, deployment_id=deployment_id)
        # Show members the page without the data that only managers may read.
        endpoint = _endpoint(session, context, deployment_id) if may_manage else None
        behaviors = (
            list_behaviors(session, actor=context.actor, deployment_id=deployment_id).items
            if may_manage
            else ()
        )
        schedules = (
            list_schedules(session, actor=context.actor, deployment_id=deployment_id).items
            if may_manage
            else ()
        )
        labels = context.labels(session, [deployment.daemon_identity_id])
        tasks = (
            list_organization_tasks(
                session,
                actor=context.actor,
                organization_id=deployment.organization_id,
                deployment_id=deployment_id,
                limit=_TASKS,
            ).items
            if context.holds(Permission.TASK_READ)
            else ()
        )
    return context.render(
        "agent.html",
        deployment=deployment,
        endpoint=endpoint,
        behaviors=behaviors,
        schedules=schedules,
        tasks=tasks,
        labels=labels,
        may_manage=may_manage,
        may_talk=context.holds(Permission.MODEL_EXECUTE) and deployment.disabled_at is None,
        report=report,
    )


routes.action_calling(
    "/agents/<id:deployment_id>/disable",
    disable_deployment,
    return_to=f"{PAGE}/{{deployment_id}}",
    summary="Disable a deployment",
    rest="disable_deployment",
    command="deployments disable",
    # The path is fixed at the declaration, so the user returns to the list and not to the deployment.
    step_up=PAGE,
)


routes.action_calling(
    "/agents/<id:deployment_id>/enable",
    enable_deployment,
    return_to=f"{PAGE}/{{deployment_id}}",
    summary="Enable a disabled deployment",
    rest="enable_deployment",
    command="deployments enable",
    step_up=PAGE,
)


def _endpoint(session: Session, context: PageContext, deployment_id: UUID) -> ShownEndpoint | None:
    try:
        # A missing endpoint is no error: behaviors of this service may respond for a deployment instead.
        return get_endpoint(session, actor=context.actor, deployment_id=deployment_id)
    except ResourceNotFound:
        return None
