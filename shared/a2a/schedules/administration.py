"""Administer schedules: the times, the message and the receiving identity (docs/specification/a2a.md#schedules).

The Principal Identity of a schedule owns the files that the agent stores. It adds no permission: the agent always works
with the permissions of its own service account.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, delete, func, insert, select, update

from shared.a2a.schedules.cron import parse_cron
from shared.a2a.schedules.drafts import checked_values
from shared.a2a.schedules.resources import Missed, Run, RunState, Schedule, ScheduleDraft
from shared.a2a.schedules.tables import schedule_runs, schedules
from shared.a2a.tables import tasks
from shared.db.database import Session
from shared.errors import FieldError, ValidationFailed
from shared.files.references import ReferenceKind, list_referred_files
from shared.identity.access.authorization import Actor, authorize_for_deployment
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.conditional_updates import set_values
from shared.identity.errors import ResourceNotFound
from shared.identity.lookups import get_one
from shared.ids import new_id
from shared.pagination import Page, Position, ascending, descending, paginate

SCHEDULES_LIMIT = 200


def create_schedule(session: Session, *, actor: Actor, deployment_id: UUID, draft: ScheduleDraft) -> Schedule:
    """Create a schedule. Raises ValidationFailed."""
    organization_id = authorize_for_deployment(session, actor, Permission.DEPLOYMENT_MANAGE, deployment_id)
    values = checked_values(session, draft, deployment_id, organization_id)
    count = session.execute(
        select(func.count()).where(schedules.c.deployment_id == deployment_id)
    ).scalar_one()
    if count >= SCHEDULES_LIMIT:
        message = f"would exceed the limit of {SCHEDULES_LIMIT} schedules for a deployment"
        raise ValidationFailed(errors=[FieldError(location="body", name="name", message=message)])
    schedule_id = new_id()
    session.execute(
        insert(schedules).values(
            id=schedule_id, deployment_id=deployment_id, next_at=_next_tick(session, draft), **values
        )
    )
    _record(session, actor, "schedule.created", schedule_id, organization_id)
    return _get(session, schedule_id)


def get_schedule(
    session: Session, *, actor: Actor, schedule_id: UUID, deployment_id: UUID | None = None
) -> Schedule:
    """Return a schedule. Raises ResourceNotFound if it does not exist or belongs to another `deployment_id`."""
    return _authorized(session, actor, schedule_id, deployment_id)[0]


def list_schedules(
    session: Session, *, actor: Actor, deployment_id: UUID, **page: Unpack[Position]
) -> Page[Schedule]:
    """Return a page of the schedules of a deployment."""
    authorize_for_deployment(session, actor, Permission.DEPLOYMENT_MANAGE, deployment_id)
    statement = _SCHEDULES.where(schedules.c.deployment_id == deployment_id)
    return paginate(session, statement, ascending(schedules.c.id), _schedule, **page)


def replace_schedule(
    session: Session,
    *,
    actor: Actor,
    schedule_id: UUID,
    draft: ScheduleDraft,
    deployment_id: UUID | None = None,
) -> Schedule:
    """Replace a schedule under the same id. Ticks before the replacement do not run."""
    before, organization_id = _lock(session, actor, schedule_id, deployment_id)
    values = checked_values(session, draft, before.deployment_id, organization_id)
    # Set no next tick for a disabled schedule, so that the index of due schedules leaves it out.
    next_at = None if before.disabled_at is not None else _next_tick(session, draft)
    if set_values(session, schedules, schedule_id, {**values, "next_at": next_at}, updated_at=func.now()):
        _record(session, actor, "schedule.replaced", schedule_id, organization_id)
    return _get(session, schedule_id)


def disable_schedule(
    session: Session, *, actor: Actor, schedule_id: UUID, deployment_id: UUID | None = None
) -> Schedule:
    """Disable a schedule."""
    before, organization_id = _lock(session, actor, schedule_id, deployment_id)
    if before.disabled_at is None:
        _change(session, schedule_id, {"disabled_at": func.now(), "next_at": None})
        _record(session, actor, "schedule.disabled", schedule_id, organization_id)
    return _get(session, schedule_id)


def enable_schedule(
    session: Session, *, actor: Actor, schedule_id: UUID, deployment_id: UUID | None = None
) -> Schedule:
    """Enable a schedule from its next tick on; ticks while it was disabled do not count as missed."""
    before, organization_id = _lock(session, actor, schedule_id, deployment_id)
    if before.disabled_at is not None:
        _change(session, schedule_id, {"disabled_at": None, "next_at": _next_tick(session, before)})
        _record(session, actor, "schedule.enabled", schedule_id, organization_id)
    return _get(session, schedule_id)


def delete_schedule(
    session: Session, *, actor: Actor, schedule_id: UUID, deployment_id: UUID | None = None
) -> None:
    """Delete a schedule and the records of its runs; tasks that it created continue."""
    _, organization_id = _lock(session, actor, schedule_id, deployment_id)
    session.execute(delete(schedules).where(schedules.c.id == schedule_id))
    _record(session, actor, "schedule.deleted", schedule_id, organization_id)


def list_runs(
    session: Session,
    *,
    actor: Actor,
    schedule_id: UUID,
    deployment_id: UUID | None = None,
    **page: Unpack[Position],
) -> Page[Run]:
    """Return a page of a schedule's runs, the newest first."""
    _authorized(session, actor, schedule_id, deployment_id)
    statement = (
        select(schedule_runs, tasks.c.state.label("task_state"))
        .outerjoin(tasks, tasks.c.id == schedule_runs.c.task_id)
        .where(schedule_runs.c.schedule_id == schedule_id)
    )
    found = paginate(session, statement, descending(schedule_runs.c.id), _run, **page)
    return replace(found, items=_with_files(session, found.items))


def _with_files(session: Session, runs: Sequence[Run]) -> tuple[Run, ...]:
    task_ids = [str(run.task_id) for run in runs if run.task_id is not None]
    files = list_referred_files(session, ReferenceKind.TASK, task_ids)
    return tuple(replace(run, files=tuple(files.get(str(run.task_id), ()))) for run in runs)


def _next_tick(session: Session, timing: ScheduleDraft | Schedule) -> datetime | None:
    # Use the database's clock, because the scheduler compares the tick with this clock.
    now: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
    return parse_cron(timing.cron, timing.time_zone).next_after(now)


def _lock(
    session: Session, actor: Actor, schedule_id: UUID, deployment_id: UUID | None
) -> tuple[Schedule, UUID]:
    """Lock and return a schedule that the actor may change. The lock prevents that a tick runs during a change."""
    session.execute(select(schedules.c.id).where(schedules.c.id == schedule_id).with_for_update())
    return _authorized(session, actor, schedule_id, deployment_id)


def _authorized(
    session: Session, actor: Actor, schedule_id: UUID, deployment_id: UUID | None
) -> tuple[Schedule, UUID]:
    """Return a schedule and its organization if the actor may manage its deployment."""
    found = _get(session, schedule_id)
    # A schedule of another deployment is reported as not found under this one's address.
    if deployment_id not in (None, found.deployment_id):
        raise ResourceNotFound
    organization_id = authorize_for_deployment(
        session, actor, Permission.DEPLOYMENT_MANAGE, found.deployment_id
    )
    return found, organization_id


def _get(session: Session, schedule_id: UUID) -> Schedule:
    return get_one(session, _SCHEDULES.where(schedules.c.id == schedule_id), _schedule)


def _change(session: Session, schedule_id: UUID, values: dict[str, Any]) -> None:
    changed = update(schedules).where(schedules.c.id == schedule_id)
    session.execute(changed.values(**values, updated_at=func.now()))


def _record(session: Session, actor: Actor, action: str, schedule_id: UUID, organization_id: UUID) -> None:
    record(session, actor, action, schedule_id, organization_id=organization_id)


def _schedule(row: Row[Any]) -> Schedule:
    return Schedule(**{**row._asdict(), "missed": Missed(row.missed)})


def _run(row: Row[Any]) -> Run:
    return Run(
        id=row.id,
        tick_at=row.tick_at,
        state=RunState(row.state),
        code=row.code,
        task_id=row.task_id,
        task_state=row.task_state,
        passed_over=row.passed_over,
        created_at=row.created_at,
    )


_SCHEDULES = select(
    schedules.c.id,
    schedules.c.deployment_id,
    schedules.c.name,
    schedules.c.cron,
    schedules.c.time_zone,
    schedules.c.message,
    schedules.c.behavior_id,
    schedules.c.principal_id.label("principal_identity_id"),
    schedules.c.missed,
    schedules.c.catch_up_limit,
    schedules.c.next_at,
    schedules.c.disabled_at,
    schedules.c.created_at,
)
