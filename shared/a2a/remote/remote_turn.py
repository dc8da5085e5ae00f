"""One turn of a remote agent: its connection, its limits, and the conversion of the agent's events into updates.

The first response of the agent has the id of the agent's task. This id is stored for the turn before an update of the
task is written. Ids in later responses are ignored.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from shared import failpoints
from shared.a2a.behaviors.turn_cancellation import TurnCancellation
from shared.a2a.remote.connection import AgentConnection
from shared.a2a.remote.errors import AgentUnreachable, ResponseInvalid, ResponseTooLarge
from shared.a2a.remote.reconciliation import LogCopy
from shared.a2a.remote.response_parser import agents_message, ids_of
from shared.a2a.remote.turn_rows import SentTurn, SentTurns
from shared.a2a.types import Message, StreamResponse, Task, TaskState
from shared.a2a.updates import Replied, StatusChanged, Turn, Update
from shared.runtime.retry import backoff_seconds, jittered

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 15.0
MAXIMUM_UPDATES = 100_000
"""Limit for one run of a turn."""


class Stopped(Exception):
    """The turn was asked to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLimits:
    """The limits for a remote agent, from the settings."""

    retry_seconds: float
    silence_seconds: float
    updates_per_second: int


class RemoteTurn:
    """A turn, the connection to its agent, and the state of the exchange with the agent."""

    def __init__(
        self,
        turn: Turn,
        sent: SentTurn,
        *,
        rows: SentTurns,
        connection: AgentConnection,
        copy: LogCopy,
        limits: RemoteLimits,
    ) -> None:
        self.turn = turn
        self.sent = sent
        self.rows = rows
        self.connection = connection
        self.limits = limits
        self.copy = copy
        self.remote_task_id = sent.remote_task_id
        self.cancellation = TurnCancellation(turn)
        self._has_replied = False
        self._is_marked = sent.is_marked
        self._rate_limit = _RateLimit(limits.updates_per_second)

    @property
    def is_settled(self) -> bool:
        """Whether no update may follow."""
        return self._has_replied or self.copy.is_settled

    def mark_sent(self) -> None:
        """Store that the message is about to be sent.

        If the turn was asked to end, store that the message was not sent, and raise Stopped. Raises TurnGone,
        ServiceUnavailable.
        """
        # The statement that opened the turn may have marked it. Then the first attempt needs no further statement.
        is_marked, self._is_marked = self._is_marked, False
        if self.cancellation.is_set():
            # The message did not leave, so a later worker must not search for it at the agent.
            if is_marked:
                self.rows.mark_unsent(self.turn)
            raise Stopped
        if not is_marked:
            self.rows.mark_sent(self.turn)

    def bind(self, task_id: str, context_id: str | None) -> None:
        """Store the id of the agent's task for this turn. Raises TurnGone, ServiceUnavailable."""
        self.rows.bind(self.turn, task_id, context_id)
        self.remote_task_id = task_id
        failpoints.hit("remote.bound")

    def apply_event(self, event: StreamResponse) -> Iterator[Update]:
        """Yield the updates of an event from the agent.

        Raises ResponseInvalid, ResponseTooLarge, Stopped.
        """
        if event.message is not None:
            self._has_replied = True
            yield _final_update(
                event.message, has_task=self.remote_task_id is not None or bool(self.copy.updates)
            )
            return
        # Bind the task before its updates are written, so that a worker that takes over finds the task.
        if self.remote_task_id is None:
            named = ids_of(event)
            if named is None:
                raise ResponseInvalid
            self.bind(*named)
        for update in self._updates(event):
            self._throttle()
            yield update

    def reconcile(self, task: Task) -> Iterator[Update]:
        """Yield the updates of the agent's task that are not in our log. Raises ResponseTooLarge, Stopped."""
        for update in self.copy.reconcile(task):
            self._throttle()
            yield update

    def pause(self, seconds: float) -> None:
        """Wait. Raises Stopped."""
        if self.cancellation.wait(seconds):
            raise Stopped

    def check(self) -> None:
        """Raise Stopped if the turn was asked to end."""
        if self.cancellation.is_set():
            raise Stopped

    def _updates(self, event: StreamResponse) -> Iterator[Update]:
        if event.task is not None:
            return self.copy.reconcile(event.task)
        if event.status_update is not None:
            return self.copy.apply_status(event.status_update)
        if event.artifact_update is not None:
            return self.copy.apply_artifact(event.artifact_update)
        raise ResponseInvalid

    def _throttle(self) -> None:
        """Limit the rate of updates. During a pause, unread events wait in the connection to the agent."""
        if self.copy.updates > MAXIMUM_UPDATES:
            raise ResponseTooLarge
        seconds = self._rate_limit.seconds_to_wait()
        if seconds:
            self.pause(seconds)


class RetryBudget:
    """Growing pauses between the attempts of one request, within a total time."""

    def __init__(self, remote: RemoteTurn, seconds: float) -> None:
        self._remote = remote
        self._deadline = time.monotonic() + seconds
        self._failures = 0

    def pause(self, reason: object, *, at_least_seconds: float | None = None) -> None:
        """Wait before the next attempt. Raises AgentUnreachable after the total time, and Stopped."""
        self._failures += 1
        seconds = backoff_seconds(self._failures, first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS)
        seconds = max(jittered(seconds), at_least_seconds or 0.0)
        # If the pause would exceed the total time, fail now, because no attempt could follow the pause.
        if time.monotonic() + seconds > self._deadline:
            raise AgentUnreachable(f"The agent could not be reached ({reason}).")
        self._remote.pause(seconds)


class _RateLimit:
    """A rate limit. It allows a burst of one second's updates; further updates are evenly spaced."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._free_at = 0.0

    def seconds_to_wait(self) -> float:
        now = time.monotonic()
        # Unused time counts for at most one second, so a burst after a pause is bounded.
        self._free_at = max(self._free_at, now - 1.0) + 1.0 / self._per_second
        return max(0.0, self._free_at - now)


def _final_update(message: Message, *, has_task: bool) -> Update:
    update = agents_message(message)
    return StatusChanged(state=TaskState.COMPLETED, message=update) if has_task else Replied(message=update)
