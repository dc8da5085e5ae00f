"""Administer schedules: what an agent is told when, and on whose behalf (specification 2.4, Cron).

Who manages deployments manages their schedules. A Principal Identity selects who receives: it owns what the agent
stores and the usage is attributed to it. It gives no permission: the agent always works with its own daemon's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import Row, delete, func, insert, select, update

from shared.a2a.errors import InvalidParams
from shared.a2a.identifiers import check_identifier
from shared.a2a.schedules.cron import CronInvalid, parse_cron
from shared.a2a.schedules.tables import schedule_runs, schedules
from shared.a2a.tables import behaviors, tasks
from shared.a2a.types import Message, Role
from shared.database import Session
from shared.errors import FieldError, ValidationFailed
from shared.identity.audit import record
from shared.identity.authorization import Actor, authorize_for_deployment
from shared.identity.errors import ResourceNotFound
from shared.identity.names import require_name
from shared.identity.pages import DEFAULT_LIMIT, Page, newest_first, oldest_first
from shared.identity.permissions import Permission
from shared.identity.tables import identities
from shared.ids import new_id

SCHEDULES_LIMIT = 200
MAX_CATCH_UP = 100


class Missed(StrEnum):
    """What becomes of ticks that came while nothing ran.

    `SKIP` drops them, `RUN_ONCE` runs the last of them, `CATCH_UP` runs them all, up to the schedule's limit.
    """

    SKIP = "skip"
    RUN_ONCE = "run_once"
    CATCH_UP = "catch_up"


class RunState(StrEnum):
    """What became of a tick."""

    STARTED = "started"
    REFUSED = "refused"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDraft:
    """What a schedule is to be. `message` is a Message of the protocol without `messageId`, `role` and `taskId`."""

    name: str
    cron: str
    time_zone: str
    message: dict[str, Any]
    behavior_id: UUID | None = None
    principal_identity_id: UUID | None = None
    missed: Missed = Missed.SKIP
    catch_up_limit: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule; `next_at` is None while it is disabled."""

    id: UUID
    deployment_id: UUID
    name: str
    cron: str
    time_zone: str
    message: dict[str, Any]
    behavior_id: UUID | None
    principal_identity_id: UUID | None
    missed: Missed
    catch_up_limit: int
    next_at: datetime | None
    disabled_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What became of a tick. `passed_over` counts the ticks before it that were not run, 1,000 standing for more."""

    id: UUID
    tick_at: datetime
    state: RunState
    code: str | None
    task_id: UUID | None
    task_state: str | None
    passed_over: int
    created_at: datetime


def create_schedule(session: Session, *, by: Actor, deployment_id: UUID, draft: ScheduleDraft) -> Schedule:
    """Make a schedule; its first tick is the next that comes. Raises ValidationFailed."""
    organization_id = authorize_for_deployment(session, by, Permission.DEPLOYMENT_MANAGE, deployment_id)
    values = _values(session, draft, deployment_id, organization_id)
    count = session.execute(
        select(func.count()).where(schedules.c.deployment_id == deployment_id)
    ).scalar_one()
    if count >= SCHEDULES_LIMIT:
        raise _wrong("name", f"would be one more than the {SCHEDULES_LIMIT} that a deployment may have")
    schedule_id = new_id()
    session.execute(
        insert(schedules).values(
            id=schedule_id, deployment_id=deployment_id, next_at=_next_tick(session, draft), **values
        )
    )
    _record(session, by, "schedule.created", schedule_id, organization_id)
    return _get(session, schedule_id)


def get_schedule(
    session: Session, *, by: Actor, schedule_id: UUID, deployment_id: UUID | None = None
) -> Schedule:
    """Read a schedule; with `deployment_id` only if it is of that deployment."""
    return _authorized(session, by, schedule_id, deployment_id)[0]


def list_schedules(
    session: Session,
    *,
    by: Actor,
    deployment_id: UUID,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[Schedule]:
    """List the schedules of a deployment."""
    authorize_for_deployment(session, by, Permission.DEPLOYMENT_MANAGE, deployment_id)
    statement = _SCHEDULES.where(schedules.c.deployment_id == deployment_id)
    return oldest_first(session, statement, schedules.c.id, _schedule, cursor=cursor, limit=limit)


def replace_schedule(
    session: Session,
    *,
    by: Actor,
    schedule_id: UUID,
    draft: ScheduleDraft,
    deployment_id: UUID | None = None,
) -> Schedule:
    """Make a schedule another one under the same id; ticks that have come by now are not run any more."""
    before, organization_id = _hold(session, by, schedule_id, deployment_id)
    values = _values(session, draft, before.deployment_id, organization_id)
    next_at = None if before.disabled_at is not None else _next_tick(session, draft)
    _change(session, schedule_id, {**values, "next_at": next_at})
    _record(session, by, "schedule.replaced", schedule_id, organization_id)
    return _get(session, schedule_id)


def disable_schedule(
    session: Session,
    *,
    by: Actor,
    schedule_id: UUID,
    deployment_id: UUID | None = None,
) -> Schedule:
    """Let a schedule rest."""
    before, organization_id = _hold(session, by, schedule_id, deployment_id)
    if before.disabled_at is None:
        _change(session, schedule_id, {"disabled_at": func.now(), "next_at": None})
        _record(session, by, "schedule.disabled", schedule_id, organization_id)
    return _get(session, schedule_id)


def enable_schedule(
    session: Session,
    *,
    by: Actor,
    schedule_id: UUID,
    deployment_id: UUID | None = None,
) -> Schedule:
    """Let a schedule go on with the next tick that comes; those of its rest were not missed."""
    before, organization_id = _hold(session, by, schedule_id, deployment_id)
    if before.disabled_at is not None:
        _change(session, schedule_id, {"disabled_at": None, "next_at": _next_tick(session, before)})
        _record(session, by, "schedule.enabled", schedule_id, organization_id)
    return _get(session, schedule_id)


def delete_schedule(
    session: Session,
    *,
    by: Actor,
    schedule_id: UUID,
    deployment_id: UUID | None = None,
) -> None:
    """Delete a schedule and what is known of its runs; tasks that it began go on."""
    _, organization_id = _hold(session, by, schedule_id, deployment_id)
    session.execute(delete(schedules).where(schedules.c.id == schedule_id))
    _record(session, by, "schedule.deleted", schedule_id, organization_id)


def list_runs(
    session: Session,
    *,
    by: Actor,
    schedule_id: UUID,
    deployment_id: UUID | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[Run]:
    """List what became of a schedule's ticks, newest first."""
    _authorized(session, by, schedule_id, deployment_id)
    statement = (
        select(schedule_runs, tasks.c.state.label("task_state"))
        .outerjoin(tasks, tasks.c.id == schedule_runs.c.task_id)
        .where(schedule_runs.c.schedule_id == schedule_id)
    )
    return newest_first(session, statement, schedule_runs.c.id, _run, cursor=cursor, limit=limit)


def message_of(template: dict[str, Any], message_id: str) -> Message:
    """Make the message that a template stands for. Raises pydantic's ValidationError."""
    return Message.model_validate({**template, "messageId": message_id, "role": Role.USER})


def _values(
    session: Session, draft: ScheduleDraft, deployment_id: UUID, organization_id: UUID
) -> dict[str, Any]:
    try:
        cron = parse_cron(draft.cron, draft.time_zone)
    except CronInvalid as invalid:
        raise _wrong("timeZone" if "time zone" in str(invalid) else "cron", str(invalid)) from invalid
    if draft.behavior_id is not None:
        _require_behavior(session, draft.behavior_id, deployment_id)
    if draft.principal_identity_id is not None:
        _require_principal(session, draft.principal_identity_id, organization_id)
    if not 1 <= draft.catch_up_limit <= MAX_CATCH_UP:
        raise _wrong("catchUpLimit", f"must be from 1 to {MAX_CATCH_UP}")
    return {
        "name": require_name(draft.name),
        "cron": cron.expression,
        "time_zone": cron.time_zone,
        "message": _checked_template(draft.message),
        "behavior_id": draft.behavior_id,
        "principal_id": draft.principal_identity_id,
        "missed": draft.missed.value,
        "catch_up_limit": draft.catch_up_limit,
    }


def _checked_template(template: dict[str, Any]) -> dict[str, Any]:
    """Keep of a message what a schedule can say; ids and role are the run's."""
    ours = {"messageId", "message_id", "role", "taskId", "task_id"} & template.keys()
    if ours:
        raise _wrong(f"message.{min(ours)}", "is given by the schedule")
    try:
        wire = message_of(template, "template").to_wire()
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        fields = [
            FieldError(
                location="body", name=".".join(map(str, ("message", *each["loc"]))), message=each["msg"]
            )
            for each in found
        ]
        raise ValidationFailed(errors=fields) from error
    try:
        check_identifier("message.contextId", wire.get("contextId", "none"))
    except InvalidParams as error:
        raise ValidationFailed(errors=error.errors) from error
    return {name: value for name, value in wire.items() if name not in ("messageId", "role")}


def _require_behavior(session: Session, behavior_id: UUID, deployment_id: UUID) -> None:
    statement = select(behaviors.c.id).where(
        behaviors.c.id == behavior_id, behaviors.c.deployment_id == deployment_id
    )
    if session.execute(statement).first() is None:
        raise _wrong("behaviorId", "is not a behavior of this deployment")


def _require_principal(session: Session, identity_id: UUID, organization_id: UUID) -> None:
    """Require a Principal Identity of the deployment's own organization, which pays."""
    statement = select(identities.c.id).where(
        identities.c.id == identity_id,
        identities.c.organization_id == organization_id,
        identities.c.kind == "PrincipalIdentity",
    )
    if session.execute(statement).first() is None:
        raise _wrong("principalIdentityId", "is not a Principal Identity of this organization")


def _next_tick(session: Session, timing: ScheduleDraft | Schedule) -> datetime | None:
    now: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
    return parse_cron(timing.cron, timing.time_zone).next_after(now)


def _hold(
    session: Session, by: Actor, schedule_id: UUID, deployment_id: UUID | None
) -> tuple[Schedule, UUID]:
    """Lock a schedule that the actor may change, so that no tick is run with half of the change."""
    session.execute(select(schedules.c.id).where(schedules.c.id == schedule_id).with_for_update())
    return _authorized(session, by, schedule_id, deployment_id)


def _authorized(
    session: Session, by: Actor, schedule_id: UUID, deployment_id: UUID | None
) -> tuple[Schedule, UUID]:
    """Give a schedule and its organization to who may manage its deployment."""
    found = _get(session, schedule_id)
    if deployment_id not in (None, found.deployment_id):
        raise ResourceNotFound
    organization_id = authorize_for_deployment(session, by, Permission.DEPLOYMENT_MANAGE, found.deployment_id)
    return found, organization_id


def _get(session: Session, schedule_id: UUID) -> Schedule:
    row = session.execute(_SCHEDULES.where(schedules.c.id == schedule_id)).one_or_none()
    if row is None:
        raise ResourceNotFound
    return _schedule(row)


def _change(session: Session, schedule_id: UUID, values: dict[str, Any]) -> None:
    changed = update(schedules).where(schedules.c.id == schedule_id)
    session.execute(changed.values(**values, updated_at=func.now()))


def _record(session: Session, by: Actor, action: str, schedule_id: UUID, organization_id: UUID) -> None:
    record(
        session,
        by=by,
        action=action,
        resource_kind="schedule",
        resource_id=schedule_id,
        organization_id=organization_id,
    )


def _wrong(name: str, message: str) -> ValidationFailed:
    return ValidationFailed(errors=[FieldError(location="body", name=name, message=message)])


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
