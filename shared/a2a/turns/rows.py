"""The rows of turns: what ends them, and what that means for their task.

Everything here runs with the task's row locked (`tasks/events.py`). A turn is `queued`, `running` under a lease
(`leases.py`), or `done` with an outcome; a task has at most one that runs, and they run in the order of their
messages: only the first one that is not done `is_next`, and may be claimed.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Row, bindparam, exists, func, insert, select, update

from shared.a2a.tables import task_turns
from shared.a2a.tasks.events import HeldTask, record_status
from shared.a2a.turns.leases import lease_end
from shared.a2a.turns.updates import StatusChanged
from shared.a2a.types import Message, Part, Role
from shared.database import Database, Session
from shared.ids import new_id
from shared.jobs import Context, Job, handles, sweep
from shared.queues import AGENTS, RETENTION
from shared.sweeping import run_in_batches

_earlier = task_turns.alias("earlier")
BATCH_SIZE = 1000
_DONE = {"state": "done", "lease_id": None, "lease_until": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTurn(Job):
    """A message waits for its agent: look for turns now. The worker looks anyway, twice a second."""

    kind = "agents.answer_turn"
    queue = AGENTS

    turn_id: str


@handles(AnswerTurn, in_parallel=True)
def _answer_turn(context: Context) -> int:
    context.wake(AGENTS)
    return 0


class TurnOutcome(StrEnum):
    """How a turn ended."""

    ANSWERED = "answered"
    FAILED = "failed"
    INVALID = "invalid"
    CANCELED = "canceled"
    DROPPED = "dropped"


def insert_turn(session: Session, **values: Any) -> None:
    """Queue a turn, next of its task if no other is before it, and send the hint that it waits."""
    unfinished = exists().where(_earlier.c.task_id == values["task_id"], _earlier.c.state != "done")
    session.execute(insert(task_turns).values(state="queued", is_next=~unfinished, **values))
    session.enqueue(AnswerTurn(turn_id=str(values["id"])))


def find_turn(session: Session, turn_id: UUID) -> Row[Any] | None:
    """Read a turn's row."""
    return session.execute(select(task_turns).where(task_turns.c.id == turn_id)).one_or_none()


def count_turns_before(session: Session, turn_id: UUID) -> int:
    """Count the turns of a turn's task that are to end before it begins."""
    statement = (
        select(func.count())
        .select_from(_earlier)
        .join(task_turns, task_turns.c.task_id == _earlier.c.task_id)
        .where(
            task_turns.c.id == turn_id, _earlier.c.message < task_turns.c.message, _earlier.c.state != "done"
        )
    )
    return int(session.execute(statement).scalar_one())


@sweep("agents.sweep_turns", queue=RETENTION, every_seconds=30)
def _sweep_turns(context: Context) -> int:
    return mark_next_turns(context.database)


def mark_next_turns(database: Database) -> int:
    """Mark turns as ready that are next of their task; return how many.

    A worker of the release before, which has ended the turns before them, does not know of the mark.
    """
    is_before = (_earlier.c.task_id == task_turns.c.task_id, _earlier.c.message < task_turns.c.message)
    behind = (task_turns.c.state == "queued", ~task_turns.c.is_next)
    first = select(task_turns.c.id).where(*behind, ~exists().where(*is_before, _earlier.c.state != "done"))
    statement = update(task_turns).where(task_turns.c.id.in_(first.limit(bindparam("limit"))), *behind)
    return run_in_batches(database, statement.values(is_next=True), size=BATCH_SIZE)


def count_update(session: Session, turn_id: UUID, *, has_spoken: bool) -> None:
    """Note one more update of a running turn, and renew its lease."""
    values: dict[str, Any] = {"updates": task_turns.c.updates + 1, "lease_until": lease_end()}
    if has_spoken:
        values["has_spoken"] = True
    session.execute(update(task_turns).where(task_turns.c.id == turn_id).values(values))


def settle_turn(
    session: Session, task: HeldTask, turn_id: UUID, change: StatusChanged, outcome: TurnOutcome
) -> None:
    """Record a state that settles the task, and end the turn with it.

    After a terminal state nothing more is answered; after an interruption the next message is, if one waits already.
    """
    record_status(session, task, change)
    end_turn(session, turn_id, outcome)
    if change.state.is_terminal:
        end_turns(session, task.id, TurnOutcome.DROPPED)
        return
    queued = select(task_turns.c.id).where(task_turns.c.task_id == task.id, task_turns.c.state == "queued")
    next_id = session.execute(queued.order_by(task_turns.c.message).limit(1)).scalar()
    if next_id is not None:
        session.execute(update(task_turns).where(task_turns.c.id == next_id).values(is_next=True))
        session.enqueue(AnswerTurn(turn_id=str(next_id)))


def end_turn(session: Session, turn_id: UUID, outcome: TurnOutcome, *, reply: int | None = None) -> None:
    """End a turn; `reply` is the number of the message that was its whole answer."""
    values: dict[str, Any] = _DONE | {"outcome": outcome, "reply": reply}
    session.execute(
        update(task_turns)
        .where(task_turns.c.id == turn_id)
        .values(values | {"updates": task_turns.c.updates + 1})
    )


def end_turns(session: Session, task_id: UUID, outcome: TurnOutcome) -> None:
    """End all turns of a task that are not done; a worker that runs one has lost it."""
    unfinished = update(task_turns).where(task_turns.c.task_id == task_id, task_turns.c.state != "done")
    session.execute(unfinished.values(_DONE | {"outcome": outcome}))


def explain(reason: str) -> Message:
    """Make an agent's message of a sentence of ours."""
    return Message(message_id=str(new_id()), role=Role.AGENT, parts=(Part(text=reason),))
