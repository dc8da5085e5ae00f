"""Find turns that nobody works on: their message was lost, or their worker died.

A turn whose agent has said nothing but that it works is run again from its beginning, as is any turn of a behavior
that says the same each time; otherwise its task fails and says why. A model that was called is not called a second
time behind its client's back.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Row, Select, exists, func, select, update

from shared.a2a.agents import find_behavior
from shared.a2a.jobs import AnswerTurn
from shared.a2a.tables import task_turns
from shared.a2a.task_events import find_and_hold_task
from shared.a2a.turn_rows import TurnOutcome, explain, find_turn, settle_turn
from shared.a2a.turns import StatusChanged
from shared.a2a.types import TaskState
from shared.a2a.watching import TaskHints
from shared.database import Database, Session
from shared.telemetry import SWEPT, get_logger

log = get_logger(__name__)

MAXIMUM_ATTEMPTS = 3
SWEEP_LIMIT = 200
OVERDUE_SECONDS = 3
INTERRUPTED = "The agent was interrupted before it had finished, and cannot take up again."


def sweep_turns(database: Database, hints: TaskHints) -> int:
    """Take back turns whose lease has ended and send for those that wait; give how many."""
    with database.autocommit() as session:
        lost = session.execute(_LOST_IDS).scalars().all()
    for turn_id in lost:
        take_back(database, hints, turn_id)
    with database.transaction() as session:
        waiting = session.execute(_WAITING_IDS).scalars().all()
        for turn_id in waiting:
            session.enqueue(AnswerTurn(turn_id=str(turn_id)))
    SWEPT.labels("lost_turns").inc(len(lost))
    return len(lost) + len(waiting)


def take_back(database: Database, hints: TaskHints, turn_id: UUID, *, lease_id: UUID | None = None) -> None:
    """Queue a turn whose lease has ended once more, or fail its task; do nothing about any other turn.

    With `lease_id` it is the holder of that lease who gives the turn back.
    """
    with database.transaction() as session:
        found = find_turn(session, turn_id)
        task = find_and_hold_task(session, found.task_id) if found is not None else None
        turn = session.execute(_given_back(turn_id, lease_id)).one_or_none()
        if task is None or turn is None:
            return
        log.warning("turn.lost", turn_id=str(turn_id), attempts=turn.attempts)
        if _may_run_again(session, turn):
            back = {"state": "queued", "lease_id": None, "lease_until": None}
            session.execute(update(task_turns).where(task_turns.c.id == turn_id).values(back))
            session.enqueue(AnswerTurn(turn_id=str(turn_id)))
        else:
            failed = StatusChanged(state=TaskState.FAILED, message=explain(INTERRUPTED))
            settle_turn(session, task, turn_id, failed, TurnOutcome.FAILED)
    hints.tell(task.id)


def _given_back(turn_id: UUID, lease_id: UUID | None) -> Select[Any]:
    if lease_id is None:
        return _LOST.where(task_turns.c.id == turn_id)
    return select(task_turns).where(task_turns.c.id == turn_id, task_turns.c.lease_id == lease_id)


def _may_run_again(session: Session, turn: Row[Any]) -> bool:
    if turn.attempts >= MAXIMUM_ATTEMPTS:
        return False
    if not turn.has_spoken:
        return True
    behavior = find_behavior(session, turn.behavior_id)
    return behavior is not None and behavior.kind.can_resume


_earlier = task_turns.alias("earlier")
_LOST = select(task_turns).where(
    task_turns.c.state == "running", task_turns.c.lease_until < func.clock_timestamp()
)
_LOST_IDS = _LOST.with_only_columns(task_turns.c.id).order_by(task_turns.c.lease_until).limit(SWEEP_LIMIT)
_WAITING_IDS = (
    select(task_turns.c.id)
    .where(
        task_turns.c.state == "queued",
        task_turns.c.created_at
        < func.clock_timestamp() - func.make_interval(0, 0, 0, 0, 0, 0, OVERDUE_SECONDS),
        ~exists().where(
            _earlier.c.task_id == task_turns.c.task_id,
            _earlier.c.message < task_turns.c.message,
            _earlier.c.state != "done",
        ),
    )
    .order_by(task_turns.c.created_at)
    .limit(SWEEP_LIMIT)
)
