"""Write a task's log for a worker: start a leased turn, append the agent's updates, and end the turn.

A turn runs under a lease (`turn_state/leases.py`), which every write checks and renews. A worker loses its lease if
the lease expires, or if the task is canceled or ends. Then the worker gets `TurnLost` and writes nothing more. Updates
that arrive within `BATCH_SECONDS` are written by one statement. An update that settles the task ends the turn in the
same statement, so a crash cannot separate the two. `agent_turns/lost_turns.py` recovers the turns of dead workers.

`failpoints` has a crash point after the claim of a turn, and before and after each append.
"""

import math
import time
from collections.abc import Sequence

from shared import failpoints
from shared.a2a.agent_turns.lost_turns import hand_back
from shared.a2a.agent_turns.turn_reader import read_turn, task_of
from shared.a2a.file_links import FileLinks
from shared.a2a.tasks.claimed_turns import ClaimedTurn, TurnLost
from shared.a2a.tasks.events import Ending, Result, Writer, record
from shared.a2a.tasks.task_notifier import TaskNotifier
from shared.a2a.tasks.update_flusher import UpdateFlusher
from shared.a2a.turn_state.leases import Lease
from shared.a2a.turn_state.rows import TurnOutcome, explain
from shared.a2a.types import TaskState
from shared.a2a.updates import ArtifactProduced, Replied, StatusChanged, Update, as_status, settles
from shared.db.database import Database, Session
from shared.errors import DomainError, ServiceUnavailable
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

# Clients read this text as the message of a failed task, so the text names no internals.
NO_RESPONSE = "The agent returned no response."
BATCH_SECONDS = 0.005
"""Updates that follow each other within this time are written by one statement."""
# Limits a batch, so that an agent with many updates does not hold a transaction and its row lock for long.
BATCH_LIMIT = 200


class TaskLog:
    """The log of all tasks, as the workers of this process write it."""

    def __init__(self, database: Database, notifier: TaskNotifier, links: FileLinks) -> None:
        """Create the log. It wakes readers by `notifier`, and puts `links` to files into claimed messages."""
        self._database = database
        self._links = links
        self._notifier = notifier
        self._flusher = UpdateFlusher(self._write_in_background, after_seconds=BATCH_SECONDS)

    def begin(self, lease: Lease) -> ClaimedTurn | None:
        """Return the claimed turn of a lease.

        If the agent was disabled or its behavior was deleted, fail the task and return None. Raises TurnLost,
        ServiceUnavailable.
        """
        failpoints.hit("turn.claimed")
        row = lease.row
        # The task waited for its client, and this turn has the client's reply, so the task becomes SUBMITTED again.
        if TaskState(row.task_state).is_interrupted:
            self._resubmit(lease)
        try:
            turn = read_turn(self._database, self._links, row)
        # The agent was disabled or the behavior deleted while the message waited, so a retry cannot help.
        except DomainError as error:
            self._refuse(lease, error.detail)
            return None
        return ClaimedTurn(
            turn=turn,
            lease=lease,
            written=row.updates,
            # A behavior that replays yields its updates from the first, so skip the updates that are in the log. A
            # behavior that reads the log yields only later updates, so skip none.
            to_skip=0 if turn.behavior.kind.reads_log else row.updates,
            has_artifacts=row.last_sequence > 0,
        )

    def append(self, claimed: ClaimedTurn, update: Update) -> None:
        """Append an update to the log, and end the turn if the update settles the task. Raises TurnLost.

        An update that follows another update within `BATCH_SECONDS` is buffered, and a background thread writes the
        buffered updates together. An update that settles the task is written at once. If this method raises
        ServiceUnavailable, call it again with the same object: no update is written twice.
        """
        # This is a replay and an earlier attempt has written the update, so skip it.
        if claimed.to_skip:
            claimed.to_skip -= 1
            return
        failpoints.hit("turn.before_append")
        with claimed.lock:
            if claimed.is_settled:
                raise TurnLost
            _raise_refusal(claimed)
            # After ServiceUnavailable, `retry` calls again with the same update, which must not be buffered twice.
            is_repeated, claimed.interrupted = claimed.interrupted is update, None
            if is_repeated and not claimed.pending:
                return  # the background thread has written it since
            if not is_repeated:
                claimed.pending.append(update)
            # The first update after a pause is written at once, so a slow agent's updates are not delayed.
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
        """End a turn after its behavior has returned, and complete the task unless it is settled.

        If the agent produced no update, the task fails with `NO_RESPONSE`. If the client does not see the task yet, the
        client gets INVALID_AGENT_RESPONSE instead. Raises TurnLost.
        """
        if claimed.is_settled:
            return
        _raise_refusal(claimed)
        # If there is no update, the agent has not answered, so the task must not be completed.
        if claimed.written or claimed.pending:
            self._end(claimed, StatusChanged(state=TaskState.COMPLETED), TurnOutcome.ANSWERED)
        else:
            self._end_unanswered(claimed)

    def fail(self, claimed: ClaimedTurn, reason: str) -> None:
        """Fail the task with a message for its client. Raises TurnLost."""
        failed = StatusChanged(state=TaskState.FAILED, message=explain(reason))
        self._end(claimed, failed, TurnOutcome.FAILED)

    def hand_back(self, claimed: ClaimedTurn, *, is_attempt: bool = True) -> None:
        """Write the buffered updates of a turn, and release the turn for another worker.

        If `is_attempt` is True, this counts as an attempt, like the death of a worker.
        """
        with claimed.lock:
            self._write_pending(claimed)
        hand_back(self._database, self._notifier, claimed.lease, is_attempt=is_attempt)

    def _end(self, claimed: ClaimedTurn, update: StatusChanged, outcome: TurnOutcome) -> None:
        with claimed.lock:
            # If this call is a retry, the buffer already contains the update: do not add it twice.
            if not claimed.pending or not settles(claimed.pending[-1]):
                claimed.pending.append(update)
            self._write(claimed, outcome)

    def _end_unanswered(self, claimed: ClaimedTurn) -> None:
        result = self._record(claimed, (), TurnOutcome.INVALID)
        if result is Result.LOST:
            raise TurnLost
        # The client was shown the task meanwhile, so a status must end it.
        if result is Result.VISIBLE:
            failed = StatusChanged(state=TaskState.FAILED, message=explain(NO_RESPONSE))
            self._end(claimed, failed, TurnOutcome.INVALID)
        self._notifier.notify(claimed.turn.task_id)

    def _write_in_background(self, claimed: ClaimedTurn) -> None:
        """Write buffered updates without waiting for a lock on the task's row, in the background thread.

        The thread serves all turns of the process, so one locked task must not block it. Raises ServiceUnavailable,
        LockTimeout.
        """
        self._write_pending(claimed, may_wait=False)

    def _write_pending(self, claimed: ClaimedTurn, *, may_wait: bool = True) -> None:
        """Write buffered updates. Errors of this turn alone are not raised here, but later in the turn's own thread.

        Raises ServiceUnavailable.
        """
        try:
            self._write(claimed, TurnOutcome.ANSWERED, may_wait=may_wait)
        except ServiceUnavailable:
            raise
        # Ignore the loss here: the turn's own thread gets TurnLost at its next update.
        except TurnLost:
            return
        except Exception as error:  # noqa: BLE001 (kept in `refusal`; it must not block the other turns)
            log.warning("update.refused", turn_id=claimed.turn.id, error=type(error).__name__)

    def _write(self, claimed: ClaimedTurn, outcome: TurnOutcome, *, may_wait: bool = True) -> None:
        """Write the buffered updates.

        If an earlier write raised ServiceUnavailable, its result is unknown. Then the same batch is written first and
        unchanged, so that the database can detect the repetition by the number of updates in the log.
        """
        is_news = bool(claimed.pending)
        while claimed.pending:
            claimed.unconfirmed = claimed.unconfirmed or tuple(claimed.pending)
            batch = claimed.unconfirmed
            # If a reply is the turn's only update, it stays a message. After other updates, write the reply as the
            # status that completes the task.
            if isinstance(batch[-1], Replied) and (claimed.written or len(batch) > 1):
                batch = (*batch[:-1], as_status(batch[-1]))
            try:
                result = self._record(claimed, batch, outcome, may_wait=may_wait)
                if result is Result.VISIBLE:
                    # The client was shown the task meanwhile, so a status must end it.
                    result = self._record(claimed, (as_status(batch[-1]),), outcome, may_wait=may_wait)
            except ServiceUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 (nothing was written; any such error fails the turn)
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
                self._notifier.announce_turn()  # a message for this task may be queued already
        if is_news:
            self._notifier.notify(claimed.turn.task_id)

    def _record(
        self, claimed: ClaimedTurn, batch: Sequence[Update], outcome: TurnOutcome, *, may_wait: bool = True
    ) -> Result:
        """Write a batch by one statement, or in a transaction if the task has subscribers."""
        with self._database.autocommit() as session:
            result = _record(session, claimed, batch, outcome, may_post=False, may_wait=may_wait)
        # Only deliveries to subscribers need a transaction. Most tasks have no subscriber, so try one statement first.
        if result is Result.FOLLOWED:
            with self._database.transaction() as session:
                result = _record(session, claimed, batch, outcome, may_post=True, may_wait=may_wait)
        return result

    def _resubmit(self, lease: Lease) -> None:
        """Change a task that waited for its client's input back to submitted. Raises TurnLost."""
        writer = Writer(turn_id=lease.turn_id, lease_id=lease.id, written=None)
        with self._database.transaction() as session:
            submitted = StatusChanged(state=TaskState.SUBMITTED)
            result = record(session, task_of(lease.row), [submitted], writer=writer)
        if result is Result.LOST:
            raise TurnLost
        self._notifier.notify(lease.task_id)

    def _refuse(self, lease: Lease, reason: str) -> None:
        """Fail the task of a turn that no behavior can answer."""
        failed = StatusChanged(state=TaskState.FAILED, message=explain(reason))
        writer = Writer(turn_id=lease.turn_id, lease_id=lease.id, written=lease.row.updates)
        with self._database.transaction() as session:
            ending = _ending(failed, TurnOutcome.FAILED)
            record(session, task_of(lease.row), [failed], writer=writer, ending=ending)
        self._notifier.notify(lease.task_id)


def _retry_one_by_one(claimed: ClaimedTurn, batch: Sequence[Update], error: Exception) -> None:
    """Reduce a batch that cannot be written to its first update. So the updates before the invalid one are written.

    If the batch has only one update, store the error as the turn's refusal and raise it.
    """
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
    """Return the outcomes of the task's turns after an update, or None if the update does not end its turn.

    If the update ends the task, the task's queued turns are dropped.
    """
    if update is not None and not settles(update):
        return None
    is_interruption = isinstance(update, StatusChanged) and update.state.is_interrupted
    return Ending(own=outcome, others=None if is_interruption else TurnOutcome.DROPPED)
