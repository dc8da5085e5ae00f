"""The worker's side of a task: begin a turn that it has leased, write down what its agent does, and end it.

A turn is run under a lease (`turns/leases.py`), which every update renews and which fences: a worker that lost it,
because the lease ran out, the task was cancelled, or it ended, gets `TurnLost` and writes nothing more. Each update
is one transaction. A state that settles the task ends the turn with it, so that no crash can leave the one without
the other. When a worker dies its lease ends, and `lost_turns.py` decides.

Crash points, which `faults` names: after a turn was begun, before and after each update.
"""

import threading
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Row, and_, select, update

from shared import failpoints
from shared.a2a.tables import task_turns, tasks
from shared.a2a.tasks.events import (
    HeldTask,
    find_and_hold_task,
    record_artifact,
    record_reply,
    record_status,
)
from shared.a2a.tasks.watching import TaskHints
from shared.a2a.turns.leases import Lease
from shared.a2a.turns.lost_turns import hand_back
from shared.a2a.turns.reading import read_turn
from shared.a2a.turns.rows import (
    TurnOutcome,
    count_update,
    end_turn,
    explain,
    find_turn,
    settle_turn,
)
from shared.a2a.turns.updates import ArtifactProduced, Replied, StatusChanged, Turn, Update
from shared.a2a.types import TaskState
from shared.database import Database, Session
from shared.errors import DomainError


class TurnLost(Exception):
    """This worker no longer has the turn: it was cancelled, ended, or is another's. Stop, and write nothing."""


@dataclass(slots=True, kw_only=True)
class ClaimedTurn:
    """A turn under this worker's lease.

    `written` counts the turn's updates in the log; `to_skip` those of them that an earlier attempt wrote and that this
    one has not said again yet. `unheard` is an update of which the database has not said whether it is written.
    """

    turn: Turn
    lease: Lease
    written: int = 0
    to_skip: int = 0
    unheard: Update | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


class TaskLog:
    """The log of all tasks, as workers write it."""

    def __init__(self, database: Database, hints: TaskHints) -> None:
        """Write to this database, and tell those who wait."""
        self._database = database
        self._hints = hints

    def begin(self, lease: Lease) -> ClaimedTurn | None:
        """Read a turn that was leased; None when it cannot be answered any more, and then its task has failed.

        That is so when its agent was disabled, or its behavior removed. Raises TurnLost, Unavailable.
        """
        with self._database.transaction() as session:
            task, row = _hold(session, lease)
            claimed = self._begin(session, task, lease, row)
        failpoints.hit("turn.claimed")
        if claimed is None or task.state.is_interrupted:
            self._hints.tell(task.id)
        return claimed

    def append(self, claimed: ClaimedTurn, said: Update) -> None:
        """Write an update of the turn's agent, and end the turn if it settles the task. Raises TurnLost.

        When the database did not answer, the same update may be appended again: what was written is not written twice.
        """
        if claimed.to_skip:
            claimed.to_skip -= 1
            return
        failpoints.hit("turn.before_append")
        with claimed.lock:
            self._write_once(claimed, said)
        failpoints.hit("turn.appended")
        self._hints.tell(claimed.turn.task_id)

    def finish(self, claimed: ClaimedTurn) -> None:
        """End a turn whose behavior is done: a task that is not settled by now is complete.

        An agent that said nothing at all has not answered: the client is told `INVALID_AGENT_RESPONSE`, or sees the
        task fail where it knows of it already. Raises TurnLost.
        """
        with self._database.transaction() as session:
            turn = find_turn(session, claimed.turn.id)
            if turn is None or turn.state == "done":
                return
            task, turn = _hold(session, claimed.lease)
            if turn.updates:
                completed = StatusChanged(state=TaskState.COMPLETED)
                settle_turn(session, task, turn.id, completed, TurnOutcome.ANSWERED)
            else:
                _end_unanswered(session, task, turn.id)
        self._hints.tell(claimed.turn.task_id)

    def fail(self, claimed: ClaimedTurn, reason: str) -> None:
        """Fail the task with a sentence for its client. Raises TurnLost."""
        with self._database.transaction() as session:
            task, turn = _hold(session, claimed.lease)
            failed = StatusChanged(state=TaskState.FAILED, message=explain(reason))
            settle_turn(session, task, turn.id, failed, TurnOutcome.FAILED)
        self._hints.tell(claimed.turn.task_id)

    def hand_back(self, claimed: ClaimedTurn) -> None:
        """Release a turn that this worker will not finish; it is treated as if the worker had died."""
        hand_back(self._database, self._hints, claimed.lease)

    def _write_once(self, claimed: ClaimedTurn, said: Update) -> None:
        """Write an update unless an earlier attempt has, whose commit was not confirmed."""
        may_be_written = claimed.unheard is said
        claimed.unheard = said
        with self._database.transaction() as session:
            task, turn = _hold(session, claimed.lease)
            written = turn.updates
            if not (may_be_written and written > claimed.written):
                _write(session, task, claimed.turn.id, said)
                written += 1
        claimed.written, claimed.unheard = written, None

    def _begin(self, session: Session, task: HeldTask, lease: Lease, row: Row[Any]) -> ClaimedTurn | None:
        if task.state.is_interrupted:
            record_status(session, task, StatusChanged(state=TaskState.SUBMITTED))
        try:
            turn = read_turn(session, row, task)
        except DomainError as error:
            failed = StatusChanged(state=TaskState.FAILED, message=explain(error.detail))
            settle_turn(session, task, row.id, failed, TurnOutcome.FAILED)
            return None
        return ClaimedTurn(turn=turn, lease=lease, written=row.updates, to_skip=row.updates)


def _hold(session: Session, lease: Lease) -> tuple[HeldTask, Row[Any]]:
    """Lock the task of a turn that this worker has, and give both rows. Raises TurnLost."""
    task = find_and_hold_task(session, lease.task_id)
    is_mine = and_(task_turns.c.id == lease.turn_id, task_turns.c.lease_id == lease.id)
    turn = session.execute(select(task_turns).where(is_mine)).one_or_none()
    if task is None or turn is None:
        raise TurnLost
    return task, turn


def _write(session: Session, task: HeldTask, turn_id: UUID, said: Update) -> None:
    if isinstance(said, ArtifactProduced):
        count_update(session, turn_id, has_spoken=True)
        record_artifact(session, task, said)
    elif isinstance(said, Replied):
        _write_reply(session, task, turn_id, said)
    elif said.state.is_settled:
        settle_turn(session, task, turn_id, said, TurnOutcome.ANSWERED)
    else:
        has_spoken = said.state is not TaskState.WORKING or said.message is not None
        count_update(session, turn_id, has_spoken=has_spoken)
        record_status(session, task, said)


def _write_reply(session: Session, task: HeldTask, turn_id: UUID, said: Replied) -> None:
    if task.is_visible:
        completed = StatusChanged(state=TaskState.COMPLETED, message=said.message)
        settle_turn(session, task, turn_id, completed, TurnOutcome.ANSWERED)
    else:
        number = record_reply(session, task, said.message)
        end_turn(session, turn_id, TurnOutcome.ANSWERED, reply=number)


def _end_unanswered(session: Session, task: HeldTask, turn_id: UUID) -> None:
    if task.is_visible:
        failed = StatusChanged(state=TaskState.FAILED, message=explain("The agent gave no answer."))
        settle_turn(session, task, turn_id, failed, TurnOutcome.INVALID)
        return
    values = {"state": TaskState.FAILED, "status_at": task.now}
    session.execute(update(tasks).where(tasks.c.id == task.id).values(values))
    end_turn(session, turn_id, TurnOutcome.INVALID)
