"""Administer the schedules of a deployment's agent, and look at their runs."""

from __future__ import annotations

from uuid import UUID

from shared.a2a.exact_json import NUMBERS
from shared.a2a.schedules import administration as schedules
from web.a2a import schedule_schemas as schemas
from web.administration import AdministrationRoutes, created
from web.calls import Answer, Call

routes = AdministrationRoutes("schedules")
OF_DEPLOYMENT = "/deployments/<id:deployment_id>/schedules"
ONE = f"{OF_DEPLOYMENT}/<id:schedule_id>"


@routes.creates(OF_DEPLOYMENT, schemas.SentSchedule, schemas.ScheduleBody)
def create_schedule(call: Call, deployment_id: UUID) -> Answer:
    """Create a schedule that sends an agent a message, from the next tick on."""
    by = call.actor
    body: schemas.SentSchedule = call.read_body(**NUMBERS)
    with call.services.database.transaction() as session:
        made = schedules.create_schedule(session, by=by, deployment_id=deployment_id, draft=body.draft())
    return created(call, schemas.ScheduleBody.of(made), f"/deployments/{deployment_id}/schedules/{made.id}")


@routes.lists(OF_DEPLOYMENT, schemas.SchedulePage)
def list_schedules(call: Call, deployment_id: UUID) -> Answer:
    """List the schedules of a deployment."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = schedules.list_schedules(session, by=by, deployment_id=deployment_id, **call.query.position)
    return Answer(body=schemas.SchedulePage.of(page))


@routes.reads(ONE, schemas.ScheduleBody)
def read_schedule(call: Call, deployment_id: UUID, schedule_id: UUID) -> Answer:
    """Get a schedule."""
    by = call.actor
    with call.services.database.transaction() as session:
        found = schedules.get_schedule(session, by=by, deployment_id=deployment_id, schedule_id=schedule_id)
    return Answer(body=schemas.ScheduleBody.of(found))


@routes.changes("PUT", ONE, schemas.SentSchedule, schemas.ScheduleBody)
def replace_schedule(call: Call, deployment_id: UUID, schedule_id: UUID) -> Answer:
    """Replace a schedule; it goes on with the next tick that comes."""
    by = call.actor
    body: schemas.SentSchedule = call.read_body(**NUMBERS)
    with call.services.database.transaction() as session:
        changed = schedules.replace_schedule(
            session, by=by, deployment_id=deployment_id, schedule_id=schedule_id, draft=body.draft()
        )
    return Answer(body=schemas.ScheduleBody.of(changed))


@routes.removes(ONE)
def delete_schedule(call: Call, deployment_id: UUID, schedule_id: UUID) -> Answer:
    """Delete a schedule and the record of its runs; tasks that it began go on."""
    by = call.actor
    with call.services.database.transaction() as session:
        schedules.delete_schedule(session, by=by, deployment_id=deployment_id, schedule_id=schedule_id)
    return Answer(status=204)


@routes.acts(f"{ONE}/disable", schemas.ScheduleBody)
def disable_schedule(call: Call, deployment_id: UUID, schedule_id: UUID) -> Answer:
    """Disable a schedule."""
    by = call.actor
    with call.services.database.transaction() as session:
        changed = schedules.disable_schedule(
            session, by=by, deployment_id=deployment_id, schedule_id=schedule_id
        )
    return Answer(body=schemas.ScheduleBody.of(changed))


@routes.acts(f"{ONE}/enable", schemas.ScheduleBody)
def enable_schedule(call: Call, deployment_id: UUID, schedule_id: UUID) -> Answer:
    """Enable a schedule from the next tick on; ticks while it was disabled do not count as missed."""
    by = call.actor
    with call.services.database.transaction() as session:
        changed = schedules.enable_schedule(
            session, by=by, deployment_id=deployment_id, schedule_id=schedule_id
        )
    return Answer(body=schemas.ScheduleBody.of(changed))


@routes.lists(f"{ONE}/runs", schemas.RunPage)
def list_runs(call: Call, deployment_id: UUID, schedule_id: UUID) -> Answer:
    """List the runs of a schedule, newest first; the last thousand are kept."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = schedules.list_runs(
            session, by=by, deployment_id=deployment_id, schedule_id=schedule_id, **call.query.position
        )
    return Answer(body=schemas.RunPage.of(page))
