"""Find turns that nobody works on any more, because their worker died or has stalled for longer than its lease.

Every worker of agents looks, twice a second. A turn whose agent has said nothing but that it works is run again, as
is any turn of a behavior that says the same each time or goes on where it was; otherwise its task fails
and says why. A model is not called a second time behind its client's back.
"""

from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Row, func, select, update

from shared.a2a.agent_turns.leases import LEASE_SECONDS, REQUEUED, Lease
from shared.a2a.agent_turns.rows import AnswerTurn, TurnOutcome, explain
from shared.a2a.agent_turns.updates import BehaviorKind, StatusChanged
from shared.a2a.agents.directory import find_behavior
from shared.a2a.remote.tables import remote_turns
from shared.a2a.tables import task_turns
from shared.a2a.tasks.events import Ending, LockedTask, Writer, find_and_lock_task, record
from shared.a2a.tasks.task_notifier import TaskNotifier
from shared.a2a.types import TaskState
from shared.db.database import Database, Session
from shared.observability.telemetry import SWEPT, get_logger
from shared.runtime.periodic_thread import PeriodicThread

MAXIMUM_ATTEMPTS = 3
REMOTE_ATTEMPTS = 10
"""Without a word of the agent in between: to ask what became of a message costs nothing."""


def may_run_again(session: Session, turn: Row[Any]) -> bool:
    """Tell whether a lost turn may be run again."""
    if turn.attempts < MAXIMUM_ATTEMPTS and not turn.has_spoken:
        return True
    behavior = find_behavior(session, turn.behavior_id)
    if behavior is None or not behavior.kind.can_resume:
        return False
    if behavior.kind is BehaviorKind.REMOTE:
        return _has_progressed(session, turn) or turn.attempts < REMOTE_ATTEMPTS
    return bool(turn.attempts < MAXIMUM_ATTEMPTS)


def _has_progressed(session: Session, turn: Row[Any]) -> bool:
    """Tell whether the agent has said something since the last death, and then count attempts anew."""
    seen = update(remote_turns).where(
        remote_turns.c.turn_id == turn.id, remote_turns.c.updates_seen < turn.updates
    )
    if not session.execute(seen.values(updates_seen=turn.updates)).rowcount:
        return False
    session.execute(update(task_turns).where(task_turns.c.id == turn.id).values(attempts=0))
    return True


log = get_logger(__name__)

SWEEP_LIMIT = 200
SWEEP_SECONDS = 0.5
INTERRUPTED = "The agent was interrupted before it had finished, and cannot take up again."


class TurnSweeper:
    """Takes lost turns back, as long as the process lives."""

    def __init__(self, database: Database, notifier: TaskNotifier) -> None:
        """Prepare a thread; it may wait for locks that others hold, and needs connections of its own."""
        self._thread = PeriodicThread(
            partial(sweep_turns, database, notifier),
            name="turn-sweeper",
            pause_seconds=SWEEP_SECONDS,
            # While the database was away no worker could keep its leases: all have the time to renew them.
            pause_after_failure_seconds=LEASE_SECONDS,
            starts_with_pause=True,
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._thread.stop(wait=True)


def sweep_turns(database: Database, notifier: TaskNotifier) -> int:
    """Take back turns whose lease has ended; give how many."""
    with database.autocommit() as session:
        lost = session.execute(_LOST_IDS).all()
    for turn in lost:
        _take_back(database, notifier, turn.id, turn.task_id)
    if lost:
        SWEPT.labels("lost_turns").inc(len(lost))
    return len(lost)


def hand_back(database: Database, notifier: TaskNotifier, lease: Lease, *, is_attempt: bool) -> None:
    """Release a turn for its holder; nothing happens if the lease is lost already.

    It is no attempt where the holder was told to stop: a turn outlasts any number of restarts in good order.
    """
    with database.transaction() as session:
        task = find_and_lock_task(session, lease.task_id)
        held = (task_turns.c.id == lease.turn_id, task_turns.c.lease_id == lease.id)
        if not is_attempt:
            session.execute(update(task_turns).where(*held).values(attempts=task_turns.c.attempts - 1))
        turn = session.execute(select(task_turns).where(*held)).one_or_none()
        if task is None or turn is None:
            return
        _give_up(session, task, turn)
    notifier.notify(task.id)


def _take_back(database: Database, notifier: TaskNotifier, turn_id: UUID, task_id: UUID) -> None:
    """Queue a turn whose lease has ended once more, or fail its task; do nothing about any other turn."""
    with database.transaction() as session:
        # Who holds the row may be the stalled worker itself, or another sweep: the next look comes soon.
        task = find_and_lock_task(session, task_id, skip_locked=True)
        turn = session.execute(_LOST.where(task_turns.c.id == turn_id)).one_or_none() if task else None
        if task is None or turn is None:
            return
        _give_up(session, task, turn)
    notifier.notify(task.id)


def _give_up(session: Session, task: LockedTask, turn: Row[Any]) -> None:
    log.warning("turn.lost", turn_id=str(turn.id), attempts=turn.attempts)
    if may_run_again(session, turn):
        session.execute(update(task_turns).where(task_turns.c.id == turn.id).values(**REQUEUED))
        session.enqueue(AnswerTurn())
    else:
        failed = StatusChanged(state=TaskState.FAILED, message=explain(INTERRUPTED))
        writer = Writer(turn_id=turn.id, lease_id=turn.lease_id, written=turn.updates)
        ending = Ending(own=TurnOutcome.FAILED, others=TurnOutcome.DROPPED)
        record(session, task, [failed], writer=writer, ending=ending)


_LOST = select(task_turns).where(
    task_turns.c.state == "running", task_turns.c.lease_until < func.clock_timestamp()
)
_LOST_IDS = (
    _LOST.with_only_columns(task_turns.c.id, task_turns.c.task_id)
    .order_by(task_turns.c.lease_until)
    .limit(SWEEP_LIMIT)
)
