"""Administer the schedules of a deployment's agent, and list their runs."""

from uuid import UUID

from shared.a2a.exact_json import NUMBERS
from shared.a2a.schedules import administration as schedules
from web.a2a import schedule_schemas as schemas
from web.framework.administration import AdministrationRoutes, created
from web.framework.calls import JsonResponse, RequestContext

routes = AdministrationRoutes("schedules")
OF_DEPLOYMENT = "/deployments/<id:deployment_id>/schedules"
ONE = f"{OF_DEPLOYMENT}/<id:schedule_id>"


@routes.creates(
    OF_DEPLOYMENT,
    schemas.SentSchedule,
    schemas.ScheduleBody,
    summary="Create a schedule that sends messages to an agent, beginning with the next tick",
)
def create_schedule(call: RequestContext, deployment_id: UUID) -> JsonResponse:
    body: schemas.SentSchedule = call.read_body(**NUMBERS)
    actor = call.actor
    with call.services.database.transaction() as session:
        made = schedules.create_schedule(
            session, actor=actor, deployment_id=deployment_id, draft=body.draft()
        )
    return created(call, schemas.ScheduleBody.of(made), f"/deployments/{deployment_id}/schedules/{made.id}")


routes.lists(
    OF_DEPLOYMENT,
    schedules.list_schedules,
    schemas.SchedulePage,
    summary="List the schedules of a deployment",
)
schedule = routes.resource(ONE, schemas.ScheduleBody)
schedule.reads("read_schedule", schedules.get_schedule, summary="Get a schedule")


@routes.changes(
    "PUT",
    ONE,
    schemas.SentSchedule,
    schemas.ScheduleBody,
    summary="Replace a schedule; it continues with the next tick",
)
def replace_schedule(call: RequestContext, deployment_id: UUID, schedule_id: UUID) -> JsonResponse:
    body: schemas.SentSchedule = call.read_body(**NUMBERS)
    actor = call.actor
    with call.services.database.transaction() as session:
        changed = schedules.replace_schedule(
            session, actor=actor, deployment_id=deployment_id, schedule_id=schedule_id, draft=body.draft()
        )
    return JsonResponse(body=schemas.ScheduleBody.of(changed))


schedule.removes(
    schedules.delete_schedule,
    summary="Delete a schedule and the record of its runs; tasks that it started continue",
)
schedule.acts("disable", schedules.disable_schedule, summary="Disable a schedule")
schedule.acts(
    "enable",
    schedules.enable_schedule,
    summary="Enable a schedule from the next tick on; ticks while it was disabled do not count as missed",
)


@routes.pages(
    f"{ONE}/runs",
    schemas.RunPage,
    summary="List the runs of a schedule, newest first; the last 1000 are kept",
)
def list_runs(call: RequestContext, deployment_id: UUID, schedule_id: UUID) -> JsonResponse:
    actor, base_url = call.actor, call.services.settings.base_url
    with call.services.database.transaction() as session:
        page = schedules.list_runs(
            session, actor=actor, deployment_id=deployment_id, schedule_id=schedule_id, **call.query.position
        )
    return JsonResponse(
        body=schemas.RunPage.linked(page, f"{base_url}/agents/{deployment_id}/tasks", base_url)
    )
