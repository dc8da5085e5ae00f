"""Run the schedules that are due: each tick becomes a message to the agent, once.

One transaction locks a schedule, records its ticks, creates their tasks and sets its next tick, so a tick runs
completely or not at all. Two workers skip each other's rows. If more is due than a batch, organizations take turns. A
tick that the agent cannot accept (disabled, suspended, without permission) is recorded as refused and is not retried.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import Row, bindparam, delete, func, insert, select, text, update

from shared import failpoints
from shared.a2a.agents.callers import OnBehalf
from shared.a2a.agents.directory import SKILL_KEY
from shared.a2a.schedules.cron import Cron
from shared.a2a.schedules.drafts import message_of
from shared.a2a.schedules.resources import Missed, RunState
from shared.a2a.schedules.tables import schedule_runs, schedules
from shared.a2a.tasks.router import RoutedMessage, Router
from shared.a2a.types import Message, Part
from shared.db.database import Database, Session
from shared.errors import DomainError, ServiceUnavailable
from shared.fairness.fair_queueing import first_of_each, select_round_robin
from shared.identity.tables import deployments
from shared.ids import new_id
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import RETENTION
from shared.observability.telemetry import get_logger
from shared.runtime.batches import drain

log = get_logger(__name__)

ON_TIME = timedelta(minutes=2)
"""A tick that is later than this counts as missed."""
COUNTED = 1000
"""The maximum number of skipped ticks that is counted."""
# Limits the history of a schedule. If a schedule runs each minute, this is less than a day.
KEPT_RUNS = 1000
BATCH_SIZE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """The database and the router for schedules."""

    database: Database
    router: Router


@sweep("schedules.run_due", queue=RETENTION, every_seconds=5)
def _run_due(context: Context) -> int:
    return run_due_schedules(context.once(_make_scheduler))


def _make_scheduler(context: Context) -> Scheduler:
    return Scheduler(database=context.database, router=Router.of(context.settings))


def run_due_schedules(scheduler: Scheduler) -> int:
    """Run the schedules that are due. Return their number."""

    def batch() -> int:
        with scheduler.database.autocommit() as session:
            due = select_round_robin(session, oldest=_OLDEST, fair=_FAIR, limit=BATCH_SIZE)
        return sum(_run_if_due(scheduler, schedule_id) for schedule_id in due)

    # A batch is short if another process runs some of its schedules. The next sweep runs the remaining schedules.
    return drain(batch, size=BATCH_SIZE)


def _run_if_due(scheduler: Scheduler, schedule_id: UUID) -> bool:
    """Run one schedule. Return False if it is no longer due, or another process has it."""
    with scheduler.database.transaction() as session:
        row = session.execute(_DUE, {"id": schedule_id}).one_or_none()
        if row is None:
            return False
        _run(session, scheduler, row)
        failpoints.hit("schedules.before_commit")
    failpoints.hit("schedules.committed")
    return True


def _run(session: Session, scheduler: Scheduler, row: Row[Any]) -> None:
    cron = Cron(expression=row.cron, time_zone=row.time_zone)
    to_run, passed_over = choose_ticks(cron, row, row.now)
    for tick in to_run:
        _begin(session, scheduler, row, tick, passed_over)
        passed_over = 0
    if passed_over and not _is_known(session, row.id, row.next_at):
        tick = cron.last_until(row.now, since=row.next_at, limit=1)[0]
        _note(session, row.id, tick, RunState.SKIPPED, passed_over=passed_over - 1)
    # Compute the next tick from now and not from the last tick, because missed ticks have been handled above.
    next_at = {"next_at": cron.next_after(row.now)}
    session.execute(update(schedules).where(schedules.c.id == row.id).values(next_at))
    _forget_old_runs(session, row.id)


def choose_ticks(cron: Cron, schedule: Any, now: datetime) -> tuple[Sequence[datetime], int]:
    """Return the ticks since `next_at` to run, the earliest first, and the number of skipped ticks."""
    due = list(cron.last_until(now, since=schedule.next_at, limit=COUNTED))
    if len(due) < COUNTED and schedule.next_at not in due and cron.is_tick(schedule.next_at):
        due.append(schedule.next_at)  # a backward search misses it if the clock was set back by half an hour
    match Missed(schedule.missed):
        case Missed.SKIP:
            chosen = [tick for tick in due if tick >= now - ON_TIME]
        case Missed.RUN_ONCE:
            chosen = list(due[:1])
        case Missed.CATCH_UP:
            chosen = list(due[: schedule.catch_up_limit])
    return chosen[::-1], len(due) - len(chosen)


def _begin(session: Session, scheduler: Scheduler, row: Row[Any], tick: datetime, passed_over: int) -> None:
    """Create the task of a tick. If this is not possible, record the tick as refused, with the reason."""
    if _is_known(session, row.id, tick):
        return  # the database's clock was set back
    try:
        # Use a savepoint, so that a refusal undoes the task but can still be recorded.
        with session.connection.begin_nested():
            task_id = _send(session, scheduler, row, tick)
    except ServiceUnavailable:
        raise  # the transaction is repeated
    except DomainError as error:
        log.info("schedule.refused", schedule_id=str(row.id), error=error.code)
        _note(session, row.id, tick, RunState.REFUSED, code=error.code, passed_over=passed_over)
    except Exception:  # one schedule must not block all others
        log.exception("schedule.broken", schedule_id=str(row.id))
        _note(session, row.id, tick, RunState.REFUSED, code="internal_error", passed_over=passed_over)
    else:
        _note(session, row.id, tick, RunState.STARTED, task_id=task_id, passed_over=passed_over)


def _is_known(session: Session, schedule_id: UUID, tick: datetime) -> bool:
    statement = select(schedule_runs.c.id).where(
        schedule_runs.c.schedule_id == schedule_id, schedule_runs.c.tick_at >= tick
    )
    return session.execute(statement.limit(1)).first() is not None


def _send(session: Session, scheduler: Scheduler, row: Row[Any], tick: datetime) -> UUID:
    """Send the schedule's message as the agent's service account, for the receiving identity of the schedule if set."""
    message = _message(row, tick)
    on_behalf = OnBehalf(
        owner_id=row.principal_id,
        payer_id=row.organization_id,
        distribution_id=None,
        transaction_id=f"schedule/{row.id}/{_written(tick)}",
        reported_caller=None,
    )
    routed = RoutedMessage(message=message, on_behalf=on_behalf, extensions=message.extensions)
    return scheduler.router.route(session, row.deployment_id, routed).task_id


def _message(row: Row[Any], tick: datetime) -> Message:
    """Return the message of a tick; `${tick}` and `${schedule}` in its texts are its time and the schedule's name."""
    message = message_of(row.message, str(uuid5(row.id, _written(tick))))
    places = {"${tick}": _written(tick), "${schedule}": row.name}
    parts = tuple(_filled(part, places) for part in message.parts)
    metadata = message.metadata
    if row.behavior_id is not None:
        metadata = {**(metadata or {}), SKILL_KEY: str(row.behavior_id)}
    return message.model_copy(update={"parts": parts, "metadata": metadata})


def _filled(part: Part, places: dict[str, str]) -> Part:
    if part.text is None:
        return part
    text = part.text
    for place, value in places.items():
        text = text.replace(place, value)
    return part.model_copy(update={"text": text})


def _note(
    session: Session,
    schedule_id: UUID,
    tick: datetime,
    state: RunState,
    *,
    passed_over: int,
    task_id: UUID | None = None,
    code: str | None = None,
) -> None:
    """Insert the record of a tick. The unique key (schedule, tick) prevents a second run."""
    session.execute(
        insert(schedule_runs).values(
            id=new_id(),
            schedule_id=schedule_id,
            tick_at=tick,
            state=state.value,
            code=code,
            task_id=task_id,
            passed_over=passed_over,
        )
    )


def _forget_old_runs(session: Session, schedule_id: UUID) -> None:
    of_schedule = schedule_runs.c.schedule_id == schedule_id
    newest_to_go = (
        select(schedule_runs.c.id)
        .where(of_schedule)
        .order_by(schedule_runs.c.id.desc())
        .offset(KEPT_RUNS)
        .limit(1)
        .scalar_subquery()
    )
    session.execute(delete(schedule_runs).where(of_schedule, schedule_runs.c.id <= newest_to_go))


def _written(tick: datetime) -> str:
    return tick.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_OLDEST = text("SELECT id FROM schedules WHERE next_at <= clock_timestamp() ORDER BY next_at LIMIT :limit")
_HEADS = first_of_each(
    table="schedules", tenant="deployment_id", ready="next_at IS NOT NULL", order="next_at"
)
# Selects round robin among organizations, regardless of the number of their deployments.
FAIR = f"""
SELECT due.id FROM ({_HEADS}) due JOIN deployments ON deployments.id = due.tenant
ORDER BY row_number() OVER (PARTITION BY deployments.organization_id ORDER BY due.place, random()), random()
LIMIT :limit
"""  # noqa: S608 (names of columns, from the code)
_FAIR = text(FAIR)
_NOW = func.clock_timestamp()
_DUE = (
    select(schedules, deployments.c.organization_id, _NOW.label("now"))
    .join(deployments, deployments.c.id == schedules.c.deployment_id)
    .where(schedules.c.id == bindparam("id"), schedules.c.next_at <= _NOW)
    .with_for_update(of=schedules, skip_locked=True)
)
