"""The worker's side of a task: take a turn that waits, write down what its agent does, and end it.

A turn is taken under a lease, which every update renews and which fences: whoever lost it, because the lease ran out,
the task was cancelled, or it ended, gets `TurnLost` and writes nothing more. Each update is one transaction. A state
that settles the task ends the turn with it, so that no crash can leave the one without the other. When a worker dies
its lease ends, and `lost_turns.py` decides.

Crash points, which `faults` names: after a claim, before and after each update.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, and_, select, update

from shared import faults
from shared.a2a.lost_turns import sweep_turns, take_back
from shared.a2a.tables import task_turns, tasks
from shared.a2a.task_events import (
    HeldTask,
    find_and_hold_task,
    record_artifact,
    record_reply,
    record_status,
)
from shared.a2a.turn_reading import read_turn
from shared.a2a.turn_rows import (
    TurnOutcome,
    count_update,
    end_turn,
    explain,
    find_and_lease_turn,
    find_turn,
    lease_end,
    settle_turn,
)
from shared.a2a.turns import ArtifactProduced, Replied, StatusChanged, Turn, Update
from shared.a2a.types import TaskState
from shared.a2a.watching import TaskHints
from shared.database import Database, Session
from shared.errors import DomainError

CANCELLATION_SECONDS = 0.5


class TurnLost(Exception):
    """This worker no longer has the turn: it was cancelled, ended, or is another's. Stop, and write nothing."""


@dataclass(slots=True, kw_only=True)
class ClaimedTurn:
    """A turn under this worker's lease.

    `written` counts the turn's updates in the log; `to_skip` those of them that an earlier attempt wrote and that this
    one has not said again yet. `unheard` is an update of which the database has not said whether it is written.
    """

    turn: Turn
    lease_id: UUID
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

    def claim(self, turn_id: UUID) -> ClaimedTurn | None:
        """Take a turn that waits; None when it does not, or when an earlier turn of its task is not done.

        A turn that cannot be answered any more (its agent was disabled, its behavior removed) fails here.
        """
        with self._database.transaction() as session:
            task = _find_and_hold_task_of(session, turn_id)
            leased = find_and_lease_turn(session, turn_id, uuid4()) if task is not None else None
            claimed = self._claim(session, task, leased) if task and leased else None
        faults.reach("turn.claimed")
        if task is not None and leased is not None and (claimed is None or task.state.is_interrupted):
            self._hints.tell(task.id)
        return claimed

    def append(self, claimed: ClaimedTurn, said: Update) -> None:
        """Write an update of the turn's agent, and end the turn if it settles the task. Raises TurnLost.

        When the database did not answer, the same update may be appended again: what was written is not written twice.
        """
        if claimed.to_skip:
            claimed.to_skip -= 1
            return
        faults.reach("turn.before_append")
        with claimed.lock:
            self._write_once(claimed, said)
        faults.reach("turn.appended")
        self._hints.tell(claimed.turn.task_id)

    def renew(self, claimed: ClaimedTurn) -> None:
        """Keep the lease for another while. Raises TurnLost."""
        leased = update(task_turns).where(_is_leased(claimed)).values(lease_until=lease_end())
        with self._database.autocommit() as session:
            renewed = session.execute(leased).rowcount
        if renewed == 0:
            raise TurnLost

    def finish(self, claimed: ClaimedTurn) -> None:
        """End a turn whose behavior has no more to say: a task that is not settled by now is complete.

        An agent that said nothing at all has not answered: the client is told `INVALID_AGENT_RESPONSE`, or sees the
        task fail where it knows of it already. Raises TurnLost.
        """
        with self._database.transaction() as session:
            turn = find_turn(session, claimed.turn.id)
            if turn is None or turn.state == "done":
                return
            task, turn = _hold(session, claimed)
            if turn.updates:
                completed = StatusChanged(state=TaskState.COMPLETED)
                settle_turn(session, task, turn.id, completed, TurnOutcome.ANSWERED)
            else:
                _end_unanswered(session, task, turn.id)
        self._hints.tell(claimed.turn.task_id)

    def fail(self, claimed: ClaimedTurn, reason: str) -> None:
        """Fail the task with a sentence for its client. Raises TurnLost."""
        with self._database.transaction() as session:
            task, turn = _hold(session, claimed)
            failed = StatusChanged(state=TaskState.FAILED, message=explain(reason))
            settle_turn(session, task, turn.id, failed, TurnOutcome.FAILED)
        self._hints.tell(claimed.turn.task_id)

    def hand_back(self, claimed: ClaimedTurn) -> None:
        """Let go of a turn that this worker will not finish; what becomes of it is decided as if it had died."""
        take_back(self._database, self._hints, claimed.turn.id, lease_id=claimed.lease_id)

    def sweep(self) -> int:
        """Find turns whose worker died and turns whose message was lost; give how many."""
        return sweep_turns(self._database, self._hints)

    def _write_once(self, claimed: ClaimedTurn, said: Update) -> None:
        """Write an update unless an attempt of before has, whose commit nobody heard of."""
        may_be_written = claimed.unheard is said
        claimed.unheard = said
        with self._database.transaction() as session:
            task, turn = _hold(session, claimed)
            written = turn.updates
            if not (may_be_written and written > claimed.written):
                _write(session, task, claimed.turn.id, said)
                written += 1
        claimed.written, claimed.unheard = written, None

    def _claim(self, session: Session, task: HeldTask, leased: Row[Any]) -> ClaimedTurn | None:
        if task.state.is_interrupted:
            record_status(session, task, StatusChanged(state=TaskState.SUBMITTED))
        cancellation = Cancellation(self._database, leased.id, leased.lease_id)
        try:
            turn = read_turn(session, leased, task, cancellation.is_requested)
        except DomainError as error:
            failed = StatusChanged(state=TaskState.FAILED, message=explain(error.detail))
            settle_turn(session, task, leased.id, failed, TurnOutcome.FAILED)
            return None
        return ClaimedTurn(
            turn=turn, lease_id=leased.lease_id, written=leased.updates, to_skip=leased.updates
        )


class Cancellation:
    """Asks, now and then, whether a turn is still this worker's to run."""

    def __init__(self, database: Database, turn_id: UUID, lease_id: UUID) -> None:
        """Ask nothing yet."""
        self._database = database
        self._condition = and_(task_turns.c.id == turn_id, task_turns.c.lease_id == lease_id)
        self._lock = threading.Lock()
        self._asked_at = float("-inf")
        self._is_requested = False

    def is_requested(self) -> bool:
        """Tell whether to stop; while the database does not answer, what it said last stands."""
        with self._lock:
            if not self._is_requested and time.monotonic() - self._asked_at >= CANCELLATION_SECONDS:
                self._asked_at = time.monotonic()
                self._is_requested = self._is_lost()
            return self._is_requested

    def _is_lost(self) -> bool:
        try:
            with self._database.autocommit() as session:
                return session.execute(select(task_turns.c.id).where(self._condition)).one_or_none() is None
        except DomainError:
            return False


def _find_and_hold_task_of(session: Session, turn_id: UUID) -> HeldTask | None:
    """Lock the task of a turn, whose own state is looked at only once nobody else changes it."""
    found: UUID | None = session.execute(
        select(task_turns.c.task_id).where(task_turns.c.id == turn_id, task_turns.c.state == "queued")
    ).scalar()
    return find_and_hold_task(session, found) if found is not None else None


def _hold(session: Session, claimed: ClaimedTurn) -> tuple[HeldTask, Row[Any]]:
    """Lock the task of a turn that this worker has, and give both rows. Raises TurnLost."""
    task = find_and_hold_task(session, claimed.turn.task_id)
    turn = session.execute(select(task_turns).where(_is_leased(claimed))).one_or_none()
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


def _is_leased(claimed: ClaimedTurn) -> Any:
    return and_(task_turns.c.id == claimed.turn.id, task_turns.c.lease_id == claimed.lease_id)
