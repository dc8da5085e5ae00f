"""Recover lost turns. A turn is lost if its worker died, or stalled for longer than the lease.

Every worker process of agents scans for lost turns twice a second. A lost turn runs again if its agent has reported
nothing but WORKING, or if its behavior can resume. Otherwise the task fails, because a model must not be called a
second time without the client's knowledge.

The number of attempts is limited. A remote agent continues while its worker is dead. So an attempt of a remote turn
counts only if the turn has no more updates than at the previous death of a worker. If a worker shuts down, or loses the
result of its claim, no attempt is counted.
"""

from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Row, func, select, update

from shared.a2a.agents.directory import find_behavior
from shared.a2a.endpoint_tables import remote_turns
from shared.a2a.tables import task_turns
from shared.a2a.tasks.events import Ending, LockedTask, Writer, find_and_lock_task, record
from shared.a2a.tasks.task_notifier import TaskNotifier
from shared.a2a.turn_state.leases import LEASE_SECONDS, REQUEUED, Lease
from shared.a2a.turn_state.rows import AnswerTurn, TurnOutcome, explain
from shared.a2a.types import TaskState
from shared.a2a.updates import BehaviorKind, StatusChanged
from shared.db.database import Database, Session
from shared.observability.telemetry import SWEPT, get_logger
from shared.runtime.periodic_thread import PeriodicThread

# Limits the attempts, because a turn may be the cause of its workers' deaths.
MAXIMUM_ATTEMPTS = 3
REMOTE_ATTEMPTS = 10
"""The limit for attempts in a row without progress. It is higher because an attempt calls no model."""


def may_run_again(session: Session, turn: Row[Any]) -> bool:
    """Return whether a lost turn may be run again."""
    # The client has seen no content of this turn, so another attempt cannot contradict an earlier update.
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
    # One statement compares and stores the number of updates, so two concurrent sweeps count one death only once.
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
        """Create the thread. `database` needs its own connections, because a sweep may wait for locks."""
        self._thread = PeriodicThread(
            partial(sweep_turns, database, notifier),
            name="turn-sweeper",
            pause_seconds=SWEEP_SECONDS,
            # During an outage of the database no worker can renew its leases. Wait until all workers had time to
            # renew, or their turns would count as lost.
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
    """Release a turn that the caller holds under `lease`. Do nothing if the lease is lost.

    If `is_attempt` is False, the attempt is not counted, so any number of orderly restarts cannot fail a turn.
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
    """If the turn's lease has expired, queue the turn again or fail its task."""
    with database.transaction() as session:
        # Skip a locked task: the stalled worker or another sweep holds the lock, and the next sweep comes soon.
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
