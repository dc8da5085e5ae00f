"""Answer a turn: run its behavior and write each of its updates into the task's log.

begin → (update → append) … → settle, under a lease all the while (`heartbeats.py`). A cancelled or lost turn ends
silently, because the task has been told; a deadline, a revocation and any failure end it as FAILED, with a sentence
of ours for the client. A process that ends hands the turn back, as does one from which a server or room in the store
stays away. A turn whose worker dies is taken back when its lease ends (`lost_turns.py`).
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import cast

from shared.a2a.agent_turns.heartbeats import StopReason, TurnHeartbeats, WatchedTurn
from shared.a2a.agent_turns.leases import Lease
from shared.a2a.agent_turns.updates import Behavior, BehaviorKind, Update, settles
from shared.a2a.tasks.claimed_turns import ClaimedTurn, TurnLost
from shared.a2a.tasks.log import TaskLog
from shared.errors import DomainError, ServiceUnavailable
from shared.models.providers.errors import UpstreamRefused
from shared.observability.telemetry import TURNS, bind_log_context, get_logger, reset_log_context
from shared.runtime.retry import is_transient, retry

log = get_logger(__name__)

TOO_LONG = "The agent took longer than it may to answer one message."
REVOKED = "The agent, or the identity or organization that it worked for, has been disabled, or its endpoint deleted."
BROKEN = "The agent failed while it was answering; the failure has been recorded."


class TurnExecution:
    """Answers turns in this process; safe to share between threads."""

    def __init__(
        self, task_log: TaskLog, watch: TurnHeartbeats, behaviors: Mapping[BehaviorKind, Behavior]
    ) -> None:
        """Take the log, the watch over this process's turns, and who answers them."""
        self._log = task_log
        self._watch = watch
        self._behaviors = behaviors

    def answer(self, lease: Lease) -> None:
        """Answer a turn that this process has leased."""
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
            outcome = "lost"
        except ServiceUnavailable as error:
            log.warning("turn.left", error=error.code)  # its lease ends, and another worker takes it
            outcome = "left"
        finally:
            reset_log_context(token)
        TURNS.labels(kind, outcome).inc()

    def _answer(self, watched: WatchedTurn, claimed: ClaimedTurn) -> str:
        """Run the behavior; say how the turn ended."""
        turn = replace(claimed.turn, is_cancelled=watched.stopped.is_set)
        behavior = self._behaviors[turn.behavior.kind]
        try:
            with closing(_closable(behavior.run(turn))) as updates:
                self._write(watched, claimed, updates)
            return self._end(watched, claimed)
        except TurnLost:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it was, the task ends and its client is told)
            if not (isinstance(error, DomainError) and is_transient(error)):
                self._fail(claimed, error)
                return "failed"
            log.warning("turn.interrupted", error=error.code)
            self._log.hand_back(claimed)
            return "handed_back"

    def _write(self, watched: WatchedTurn, claimed: ClaimedTurn, updates: Iterator[Update]) -> None:
        for update in updates:
            if watched.reason is StopReason.LOST:
                raise TurnLost
            if watched.reason is StopReason.REVOKED:
                return
            retry(partial(self._log.append, claimed, update))
            if watched.stopped.is_set() or settles(update):
                return

    def _end(self, watched: WatchedTurn, claimed: ClaimedTurn) -> str:
        """End a turn whose behavior has nothing more to say, or was told to stop; say how."""
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
    """Say what went wrong so that the client of a task may read it."""
    if isinstance(error, UpstreamRefused):
        return f"{error.detail} {error.error['message']}"
    return error.detail if isinstance(error, DomainError) else BROKEN


def _closable(updates: Iterator[Update]) -> Generator[Update]:
    """Give updates that can be closed early, so that a call to a model behind them ends and is settled at once."""
    if isinstance(updates, Generator):
        return updates
    return cast("Generator[Update]", (update for update in updates))
