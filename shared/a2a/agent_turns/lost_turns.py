"""Recover lost turns: their worker died, or stalled for longer than its lease.

Every worker of agents scans for them twice a second. A turn is run again if its agent has reported nothing but WORKING,
or if its behavior can resume: it repeats the same updates, or continues where it was. Otherwise the task fails, because
a model must not be called a second time without the client's knowledge.

Attempts are bounded. A remote agent continues by itself while workers die: a death after which the turn has more
updates than before does not count, only deaths in a row without progress do. A worker that is shut down has made no
attempt, nor has one that lost the result of its claim.
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

# A turn that kills its workers must not run for ever.
MAXIMUM_ATTEMPTS = 3
REMOTE_ATTEMPTS = 10
"""Attempts in a row without progress; asking a remote agent about a message costs nothing."""


def may_run_again(session: Session, turn: Row[Any]) -> bool:
    """Return whether a lost turn may be run again."""
    # Nothing that the client saw can be contradicted yet.
    if turn.attempts < MAXIMUM_ATTEMPTS and not turn.has_spoken:
        return True
    behavior = find_behavior(session, turn.behavior_id)
    if behavior is None or not behavior.kind.can_resume:
        return False
    if behavior.kind is BehaviorKind.REMOTE:
        return _has_progressed(session, turn) or turn.attempts < REMOTE_ATTEMPTS
    return bool(turn.attempts < MAXIMUM_ATTEMPTS)


def _has_progressed(session: Session, turn: Row[Any]) -> bool:
    """Return whether the agent has written updates since the last death; if so, reset the attempts."""
    # One statement compares and stores, so two sweeps count a death once.
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
INTERRUPTED = "The agent was interrupted before it had finished and cannot resume."


class TurnSweeper:
    """Recovers lost turns in a thread, for as long as the process runs."""

    def __init__(self, database: Database, notifier: TaskNotifier) -> None:
        """Create the thread. It may wait for locks of other transactions, so give it its own connections."""
        self._thread = PeriodicThread(
            partial(sweep_turns, database, notifier),
            name="turn-sweeper",
            pause_seconds=SWEEP_SECONDS,
            # No worker could renew its leases during an outage of the database: give all of them the time.
            pause_after_failure_seconds=LEASE_SECONDS,
            starts_with_pause=True,
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._thread.stop(wait=True)


def sweep_turns(database: Database, notifier: TaskNotifier) -> int:
    """Recover the turns with expired leases; return their number."""
    with database.autocommit() as session:
        lost = session.execute(_LOST_IDS).all()
    # One transaction for each turn: a locked task must not delay the others.
    for turn in lost:
        _take_back(database, notifier, turn.id, turn.task_id)
    if lost:
        SWEPT.labels("lost_turns").inc(len(lost))
    return len(lost)


def hand_back(database: Database, notifier: TaskNotifier, lease: Lease, *, is_attempt: bool) -> None:
    """Release a turn by its lease holder; do nothing if the lease is lost.

    With `is_attempt` false the attempt is not counted: a turn outlasts any number of orderly restarts.
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
    """Queue a turn again, or fail its task, if its lease has expired."""
    with database.transaction() as session:
        # The stalled worker itself or another sweep may hold the lock: the next sweep comes soon.
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
