"""Poll an agent's task until it is settled. Events of a subscription only trigger an earlier poll.

Servers repeat events to late subscribers, and some servers keep a stream open for ever after a restart. So the content
of events is not used: each poll compares the complete task with our log. A task without progress for too long fails.
"""

import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from shared.a2a.remote.bindings import ErrorResponse
from shared.a2a.remote.delivery import agent_refused
from shared.a2a.remote.errors import AgentForgot, AgentSilent
from shared.a2a.remote.remote_turn import RemoteTurn, RetryBudget
from shared.a2a.remote.response_parser import read_task
from shared.a2a.types import Task
from shared.a2a.updates import Update
from shared.egress.errors import EgressError
from shared.errors import DomainError
from shared.runtime.periodic_thread import PeriodicThread

MIN_POLL_SECONDS = 0.1
FIRST_POLL_SECONDS = 0.25
LONGEST_POLL_SECONDS = 5.0
SUBSCRIBED_POLL_SECONDS = 10.0
RESUBSCRIBE_SECONDS = 1.0
MAX_MISSES = 3
NOT_FOUND = 404


def follow(remote: RemoteTurn, *, streams: bool) -> Iterator[Update]:
    """Yield the updates of the agent's task until it is settled.

    Raises AgentSilent, AgentForgot, AgentRefused, AgentUnreachable, ResponseInvalid, ResponseTooLarge, Stopped.
    """
    quiet_since = time.monotonic() - remote.sent.quiet_seconds
    pause_seconds = FIRST_POLL_SECONDS
    with _Subscription(remote, is_used=streams) as subscription:
        while True:
            before = remote.copy.updates
            yield from remote.reconcile(_get(remote))
            if remote.is_settled:
                return
            if remote.copy.updates > before:
                quiet_since, pause_seconds = time.monotonic(), FIRST_POLL_SECONDS
            elif time.monotonic() - quiet_since > remote.limits.silence_seconds:
                raise AgentSilent
            longest = SUBSCRIBED_POLL_SECONDS if subscription.is_subscribed else LONGEST_POLL_SECONDS
            subscription.wait(longest if subscription.is_subscribed else pause_seconds)
            # Increase the pause after each poll without a change.
            pause_seconds = min(longest, pause_seconds * 1.5)


def _get(remote: RemoteTurn) -> Task:
    """Return the agent's task. If the agent is unavailable, retry up to the time limit for silence."""
    retries = RetryBudget(remote, remote.limits.silence_seconds)
    misses = 0
    while True:
        try:
            return read_task(
                remote.connection.ask(remote.connection.binding.get(remote.remote_task_id or ""))
            )
        except ErrorResponse as refused:
            misses += not (refused.is_busy or refused.is_broken)
            # A server that is just starting may refuse one request, so only several refusals end the turn.
            if misses >= MAX_MISSES:
                raise (AgentForgot() if refused.status == NOT_FOUND else agent_refused(refused)) from refused
            retries.pause(refused.reason or refused.status, at_least_seconds=refused.retry_after_seconds)
        except EgressError as error:
            remote.check()
            retries.pause(error.code)


class _Subscription:
    """A subscription to the agent's task, in its own thread. An event triggers a poll; its content is not used."""

    def __init__(self, remote: RemoteTurn, *, is_used: bool) -> None:
        self._remote = remote
        self._is_used = is_used
        self._changed = threading.Event()
        self._thread = PeriodicThread(self._listen, name="remote-listener", pause_seconds=RESUBSCRIBE_SECONDS)
        self.is_subscribed = False

    def __enter__(self) -> Self:
        if self._is_used:
            self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._thread.stop()

    def wait(self, seconds: float) -> None:
        """Wait until the task may have changed, from `MIN_POLL_SECONDS` up to `seconds`. Raises Stopped."""
        self._remote.pause(MIN_POLL_SECONDS)
        until = time.monotonic() + seconds - MIN_POLL_SECONDS
        while not self._changed.is_set() and time.monotonic() < until:
            self._changed.wait(MIN_POLL_SECONDS)
            self._remote.check()
        self._changed.clear()

    def _listen(self) -> None:
        if self._is_unwanted():
            return
        connection = self._remote.connection
        try:
            call = connection.binding.subscribe(self._remote.remote_task_id or "")
            with connection.stream(call, is_unwanted=self._is_unwanted) as results:
                for _ in results:
                    self.is_subscribed = True
                    self._changed.set()
                    if self._is_unwanted():
                        return
        except (ErrorResponse, DomainError):
            pass  # the task is polled anyway
        self.is_subscribed = False
        self._changed.set()

    def _is_unwanted(self) -> bool:
        return self._thread.is_stopping or self._remote.cancellation.is_set()
