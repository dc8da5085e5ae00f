"""The worker's side of a task: begin a turn that it has leased, write down what its agent does, and end it.

A turn is run under a lease (`agent_turns/leases.py`), which updates renew and which fences: a worker that lost it,
because the lease ran out, the task was cancelled, or it ended, gets `TurnLost` and writes nothing more. Each update
is one statement, or several are that come at once. A state that settles the task ends the turn with it, so that no
crash can leave the one without the other. When a worker dies its lease ends, and `lost_turns.py` decides.

Crash points, which `faults` names: after a turn was begun, before and after each update.
"""

import math
import time
from collections.abc import Sequence

from shared import failpoints
from shared.a2a.agent_turns.leases import Lease
from shared.a2a.agent_turns.lost_turns import hand_back
from shared.a2a.agent_turns.rows import TurnOutcome, explain
from shared.a2a.agent_turns.turn_reader import read_turn, task_of
from shared.a2a.agent_turns.updates import (
    ArtifactProduced,
    Replied,
    StatusChanged,
    Update,
    as_status,
    settles,
)
from shared.a2a.behaviors.file_links import FileLinks
from shared.a2a.tasks.claimed_turns import ClaimedTurn, TurnLost
from shared.a2a.tasks.events import Ending, Result, Writer, record
from shared.a2a.tasks.task_notifier import TaskNotifier
from shared.a2a.tasks.update_flusher import UpdateFlusher
from shared.a2a.types import TaskState
from shared.db.database import Database, Session
from shared.errors import DomainError, ServiceUnavailable
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

NO_ANSWER = "The agent gave no answer."
BATCH_SECONDS = 0.005
"""Updates that follow each other so closely are written together."""
BATCH_LIMIT = 200


class TaskLog:
    """The log of all tasks, as workers write it."""

    def __init__(self, database: Database, notifier: TaskNotifier, links: FileLinks) -> None:
        """Write to this database, tell those who wait, and link to the files that messages hold."""
        self._database = database
        self._links = links
        self._notifier = notifier
        self._flusher = UpdateFlusher(self._write_in_background, after_seconds=BATCH_SECONDS)

    def begin(self, lease: Lease) -> ClaimedTurn | None:
        """Read a turn that was leased; None when it cannot be answered any more, and then its task has failed.

        That is so when its agent was disabled, or its behavior removed. Raises TurnLost, ServiceUnavailable.
        """
        failpoints.hit("turn.claimed")
        row = lease.row
        if TaskState(row.task_state).is_interrupted:
            self._resubmit(lease)
        try:
            turn = read_turn(self._database, self._links, row)
        except DomainError as error:
            self._refuse(lease, error.detail)
            return None
        return ClaimedTurn(
            turn=turn,
            lease=lease,
            written=row.updates,
            to_skip=0 if turn.behavior.kind.reads_log else row.updates,
            has_artifacts=row.last_sequence > 0,
        )

    def append(self, claimed: ClaimedTurn, update: Update) -> None:
        """Write an update of the turn's agent, and end the turn if it settles the task. Raises TurnLost.

        An update that follows another within a few milliseconds is written a few milliseconds later, with all that have
        come by then; one that settles the task is written now. When the database did not answer, the same update may be
        appended again: what was written is not written twice.
        """
        if claimed.to_skip:
            claimed.to_skip -= 1
            return
        failpoints.hit("turn.before_append")
        with claimed.lock:
            if claimed.is_settled:
                raise TurnLost
            _raise_refusal(claimed)
            is_repeated, claimed.interrupted = claimed.interrupted is update, None
            if is_repeated and not claimed.pending:
                return  # written meanwhile, with those that were held back
            if not is_repeated:
                claimed.pending.append(update)
            is_due = time.monotonic() - claimed.written_at >= BATCH_SECONDS
            if is_due or settles(update) or len(claimed.pending) >= BATCH_LIMIT:
                try:
                    self._write(claimed, TurnOutcome.ANSWERED)
                except ServiceUnavailable:
                    claimed.interrupted = update
                    raise
            else:
                self._flusher.add(claimed)
        failpoints.hit("turn.appended")

    def finish(self, claimed: ClaimedTurn) -> None:
        """End a turn whose behavior is done: a task that is not settled by now is complete.

        An agent that said nothing at all has not answered: the client is told `INVALID_AGENT_RESPONSE`, or sees the
        task fail where it knows of it already. Raises TurnLost.
        """
        if claimed.is_settled:
            return
        _raise_refusal(claimed)
        if claimed.written or claimed.pending:
            self._end(claimed, StatusChanged(state=TaskState.COMPLETED), TurnOutcome.ANSWERED)
        else:
            self._end_unanswered(claimed)

    def fail(self, claimed: ClaimedTurn, reason: str) -> None:
        """Fail the task with a sentence for its client. Raises TurnLost."""
        failed = StatusChanged(state=TaskState.FAILED, message=explain(reason))
        self._end(claimed, failed, TurnOutcome.FAILED)

    def hand_back(self, claimed: ClaimedTurn, *, is_attempt: bool = True) -> None:
        """Release a turn that this worker will not finish; an attempt is treated as if the worker had died."""
        with claimed.lock:
            self._write_pending(claimed)
        hand_back(self._database, self._notifier, claimed.lease, is_attempt=is_attempt)

    def _end(self, claimed: ClaimedTurn, update: StatusChanged, outcome: TurnOutcome) -> None:
        with claimed.lock:
            if not claimed.pending or not settles(claimed.pending[-1]):
                claimed.pending.append(update)
            self._write(claimed, outcome)

    def _end_unanswered(self, claimed: ClaimedTurn) -> None:
        result = self._record(claimed, (), TurnOutcome.INVALID)
        if result is Result.LOST:
            raise TurnLost
        if result is Result.VISIBLE:
            failed = StatusChanged(state=TaskState.FAILED, message=explain(NO_ANSWER))
            self._end(claimed, failed, TurnOutcome.INVALID)
        self._notifier.notify(claimed.turn.task_id)

    def _write_in_background(self, claimed: ClaimedTurn) -> None:
        """Write what is pending unless somebody else holds the task, for whom nobody waits.

        Raises ServiceUnavailable.
        """
        self._write_pending(claimed, may_wait=False)

    def _write_pending(self, claimed: ClaimedTurn, *, may_wait: bool = True) -> None:
        """Write what is pending; what fails for this turn alone, its own thread learns. Raises ServiceUnavailable."""
        try:
            self._write(claimed, TurnOutcome.ANSWERED, may_wait=may_wait)
        except ServiceUnavailable:
            raise
        except TurnLost:
            return
        except Exception as error:  # noqa: BLE001 (it is kept, and must not keep others from being written)
            log.warning("update.refused", turn_id=claimed.turn.id, error=type(error).__name__)

    def _write(self, claimed: ClaimedTurn, outcome: TurnOutcome, *, may_wait: bool = True) -> None:
        """Write what is pending. What an earlier attempt has perhaps written comes first, by itself, as it was."""
        is_news = bool(claimed.pending)
        while claimed.pending:
            claimed.unconfirmed = claimed.unconfirmed or tuple(claimed.pending)
            batch = claimed.unconfirmed
            if isinstance(batch[-1], Replied) and (claimed.written or len(batch) > 1):
                batch = (*batch[:-1], as_status(batch[-1]))
            try:
                result = self._record(claimed, batch, outcome, may_wait=may_wait)
                if result is Result.VISIBLE:
                    result = self._record(claimed, (as_status(batch[-1]),), outcome, may_wait=may_wait)
            except ServiceUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 (nothing is written; whatever it was, the turn fails by it)
                _retry_one_by_one(claimed, batch, error)
                continue
            if result is Result.LOST:
                claimed.pending.clear()
                claimed.written_at = -math.inf
                raise TurnLost
            claimed.written += len(batch)
            del claimed.pending[: len(batch)]
            claimed.unconfirmed, claimed.written_at = (), time.monotonic()
            claimed.has_artifacts |= any(isinstance(update, ArtifactProduced) for update in batch)
            claimed.is_settled = settles(batch[-1])
            if isinstance(batch[-1], StatusChanged) and batch[-1].state.is_interrupted:
                self._notifier.announce_turn()  # the next message may wait already
        if is_news:
            self._notifier.notify(claimed.turn.task_id)

    def _record(
        self, claimed: ClaimedTurn, batch: Sequence[Update], outcome: TurnOutcome, *, may_wait: bool = True
    ) -> Result:
        with self._database.autocommit() as session:
            result = _record(session, claimed, batch, outcome, may_post=False, may_wait=may_wait)
        if result is Result.FOLLOWED:
            with self._database.transaction() as session:
                result = _record(session, claimed, batch, outcome, may_post=True, may_wait=may_wait)
        return result

    def _resubmit(self, lease: Lease) -> None:
        """Let a task that waited for its client wait for its agent again. Raises TurnLost."""
        writer = Writer(turn_id=lease.turn_id, lease_id=lease.id, written=None)
        with self._database.transaction() as session:
            submitted = StatusChanged(state=TaskState.SUBMITTED)
            result = record(session, task_of(lease.row), [submitted], writer=writer)
        if result is Result.LOST:
            raise TurnLost
        self._notifier.notify(lease.task_id)

    def _refuse(self, lease: Lease, reason: str) -> None:
        """Fail the task of a turn that cannot be answered."""
        failed = StatusChanged(state=TaskState.FAILED, message=explain(reason))
        writer = Writer(turn_id=lease.turn_id, lease_id=lease.id, written=lease.row.updates)
        with self._database.transaction() as session:
            ending = _ending(failed, TurnOutcome.FAILED)
            record(session, task_of(lease.row), [failed], writer=writer, ending=ending)
        self._notifier.notify(lease.task_id)


def _retry_one_by_one(claimed: ClaimedTurn, batch: Sequence[Update], error: Exception) -> None:
    """Go on with the first alone, so that all are written before the one that cannot be; raise for that one."""
    if len(batch) > 1:
        claimed.unconfirmed = (batch[0],)
        return
    claimed.pending.clear()
    claimed.unconfirmed, claimed.refusal = (), error
    raise error


def _raise_refusal(claimed: ClaimedTurn) -> None:
    if claimed.refusal is not None:
        raise claimed.refusal


def _record(
    session: Session,
    claimed: ClaimedTurn,
    batch: Sequence[Update],
    outcome: TurnOutcome,
    *,
    may_post: bool,
    may_wait: bool,
) -> Result:
    writer = Writer(
        turn_id=claimed.lease.turn_id,
        lease_id=claimed.lease.id,
        written=claimed.written,
        has_artifacts=claimed.has_artifacts,
    )
    return record(
        session,
        task_of(claimed.lease.row),
        batch,
        writer=writer,
        ending=_ending(batch[-1] if batch else None, outcome),
        hidden_state=None if batch else TaskState.FAILED,
        may_post=may_post,
        may_wait=may_wait,
    )


def _ending(update: Update | None, outcome: TurnOutcome) -> Ending | None:
    """Tell how an update ends the turn, and what it makes of others: after the task's end none is answered."""
    if update is not None and not settles(update):
        return None
    is_interruption = isinstance(update, StatusChanged) and update.state.is_interrupted
    return Ending(own=outcome, others=None if is_interruption else TurnOutcome.DROPPED)
