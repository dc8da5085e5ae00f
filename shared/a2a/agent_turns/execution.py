"""Execute a turn: run its behavior, and append each update to the task's log.

begin → (update → append) … → settle. The worker holds a lease during all steps (`heartbeats.py`).
A canceled or lost turn writes no further update, because its task has ended or another worker runs the turn. A
deadline, a revoked permission or a failure ends the task as FAILED, with a message from this service. If the process
shuts down, or a server or the file store stays unavailable, the turn is released for another attempt. If the worker
dies, the turn is recovered when its lease expires (`lost_turns.py`).
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import cast

from shared.a2a.agent_turns.heartbeats import StopReason, TurnHeartbeats, WatchedTurn
from shared.a2a.agent_turns.task_log import TaskLog
from shared.a2a.tasks.claimed_turns import ClaimedTurn, TurnLost
from shared.a2a.turn_state.leases import Lease
from shared.a2a.updates import Behavior, BehaviorKind, Update, settles
from shared.errors import DomainError, ServiceUnavailable
from shared.models.providers.errors import UpstreamRefused
from shared.observability.telemetry import TURNS, bind_log_context, get_logger, reset_log_context
from shared.runtime.retry import is_transient, retry

log = get_logger(__name__)

TOO_LONG = "The agent exceeded the time limit for answering one message."
REVOKED = "The agent, or the identity or organization that it worked for, has been disabled, or its endpoint deleted."
BROKEN = "The agent failed while it was answering. The failure has been logged."


class TurnExecution:
    """Executes turns in this process; safe to share between threads."""

    def __init__(
        self, task_log: TaskLog, watch: TurnHeartbeats, behaviors: Mapping[BehaviorKind, Behavior]
    ) -> None:
        """Create an executor with the log, the heartbeats of this process, and a behavior of each kind."""
        self._log = task_log
        self._watch = watch
        self._behaviors = behaviors

    def answer(self, lease: Lease) -> None:
        """Execute a turn that this process has leased."""
        token = bind_log_context(turn_id=str(lease.turn_id), task_id=str(lease.task_id))
        kind = "none"
        try:
            with self._watch.watch(lease) as watched:
                claimed = self._log.begin(lease)
                if claimed is None:
                    return
                kind = claimed.turn.behavior.kind.value
                outcome = self._answer(watched, claimed)
        except TurnLost:
            log.info("turn.lost_here")
            # Another worker, or a cancellation, has taken over: this worker must write nothing.
            outcome = "lost"
        except ServiceUnavailable as error:
            log.warning("turn.left", error=error.code)  # the lease expires, and another worker takes the turn
            outcome = "left"
        finally:
            reset_log_context(token)
        TURNS.labels(kind, outcome).inc()

    def _answer(self, watched: WatchedTurn, claimed: ClaimedTurn) -> str:
        """Run the behavior and end the turn; return the outcome for the metrics."""
        # `is_cancelled` lets the behavior end a model call or a pause early.
        turn = replace(claimed.turn, is_cancelled=watched.stopped.is_set)
        behavior = self._behaviors[turn.behavior.kind]
        try:
            # Close the generator in every case: this settles the model call even if the turn is lost.
            with closing(_closable(behavior.run(turn))) as updates:
                self._write(watched, claimed, updates)
            return self._end(watched, claimed)
        except TurnLost:
            raise
        except Exception as error:  # noqa: BLE001 (any failure must end the task, or its client waits)
            if not (isinstance(error, DomainError) and is_transient(error)):
                self._fail(claimed, error)
                return "failed"
            # A server is unavailable and another attempt may succeed, so release the turn and do not fail its task.
            log.warning("turn.interrupted", error=error.code)
            self._log.hand_back(claimed)
            return "handed_back"

    def _write(self, watched: WatchedTurn, claimed: ClaimedTurn, updates: Iterator[Update]) -> None:
        for update in updates:
            if watched.reason is StopReason.LOST:
                raise TurnLost
            # The permission was revoked, so the result of the behavior must not be written.
            if watched.reason is StopReason.REVOKED:
                return
            retry(partial(self._log.append, claimed, update))
            if watched.stopped.is_set() or settles(update):
                return

    def _end(self, watched: WatchedTurn, claimed: ClaimedTurn) -> str:
        """End a turn after its behavior returned or was stopped; return the outcome for the metrics."""
        match watched.reason:
            case StopReason.LOST:
                raise TurnLost
            case StopReason.SHUTDOWN:
                self._log.hand_back(claimed, is_attempt=False)
                return "handed_back"
            case StopReason.DEADLINE:
                retry(partial(self._log.fail, claimed, TOO_LONG))
                return "too_long"
            case StopReason.REVOKED:
                retry(partial(self._log.fail, claimed, REVOKED))
                return "revoked"
            case None:
                retry(partial(self._log.finish, claimed))
                return "answered"

    def _fail(self, claimed: ClaimedTurn, error: Exception) -> None:
        if isinstance(error, DomainError):
            log.warning("turn.failed", error=error.code)
        else:
            log.exception("turn.broken")  # noqa: LOG004 (called from a handler)
        retry(partial(self._log.fail, claimed, sentence_of(error)))


def sentence_of(error: Exception) -> str:
    """Return the message for the client of a task that this error failed.

    Unexpected errors get a fixed message, because their texts may contain internal details.
    """
    # A provider's refusal concerns the client's message, so the client may read its text.
    if isinstance(error, UpstreamRefused):
        return f"{error.detail} {error.error['message']}"
    return error.detail if isinstance(error, DomainError) else BROKEN


def _closable(updates: Iterator[Update]) -> Generator[Update]:
    """Return the updates as a generator. Its `close` method ends the behavior, which settles a running model call."""
    if isinstance(updates, Generator):
        return updates
    return cast("Generator[Update]", (update for update in updates))
