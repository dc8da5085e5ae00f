"""Follow an agent's task to its end by reading it: the task is the truth, and a subscription only says when to look.

Servers repeat parts to those who subscribe late, and some seem alive for ever after a restart. So each look compares
the whole task with our log, whatever was heard meanwhile; a task in which nothing changes for too long has failed.
"""

import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from shared.a2a.agent_turns.updates import Update
from shared.a2a.remote.bindings import Refused
from shared.a2a.remote.delivery import refusal
from shared.a2a.remote.errors import AgentForgot, AgentSilent
from shared.a2a.remote.remote_turn import Patience, RemoteTurn
from shared.a2a.remote.response_parser import read_task
from shared.a2a.types import Task
from shared.egress.errors import EgressError
from shared.errors import DomainError
from shared.runtime.periodic_thread import PeriodicThread

BETWEEN_LOOKS_SECONDS = 0.1
FIRST_LOOK_SECONDS = 0.25
LONGEST_LOOK_SECONDS = 5.0
WITH_HINTS_SECONDS = 10.0
RESUBSCRIBE_SECONDS = 1.0
MISSED_LOOKS = 3
NOT_FOUND = 404


def follow(remote: RemoteTurn, *, streams: bool) -> Iterator[Update]:
    """Say what the agent's task has until it is settled.

    Raises AgentSilent, AgentForgot, AgentRefused, AgentUnreachable, AnswerInvalid, AnswerTooLarge, Stopped.
    """
    quiet_since = time.monotonic() - remote.sent.quiet_seconds
    pause_seconds = FIRST_LOOK_SECONDS
    with _Hints(remote, is_used=streams) as hints:
        while True:
            before = remote.copy.updates
            yield from remote.reconcile(_get(remote))
            if remote.is_settled:
                return
            if remote.copy.updates > before:
                quiet_since, pause_seconds = time.monotonic(), FIRST_LOOK_SECONDS
            elif time.monotonic() - quiet_since > remote.bounds.silence_seconds:
                raise AgentSilent
            longest = WITH_HINTS_SECONDS if hints.is_subscribed else LONGEST_LOOK_SECONDS
            hints.wait(longest if hints.is_subscribed else pause_seconds)
            pause_seconds = min(longest, pause_seconds * 1.5)


def _get(remote: RemoteTurn) -> Task:
    """Read the agent's task, however long it takes for the agent to be back."""
    patience = Patience(remote, remote.bounds.silence_seconds)
    misses = 0
    while True:
        try:
            return read_task(
                remote.connection.ask(remote.connection.binding.get(remote.remote_task_id or ""))
            )
        except Refused as refused:
            misses += not (refused.is_busy or refused.is_broken)
            if misses >= MISSED_LOOKS:
                raise (AgentForgot() if refused.status == NOT_FOUND else refusal(refused)) from refused
            patience.pause(refused.reason or refused.status, at_least_seconds=refused.retry_after_seconds)
        except EgressError as error:
            remote.check()
            patience.pause(error.code)


class _Hints:
    """A subscription in a thread of its own, which tells when to look; nothing that it says is used."""

    def __init__(self, remote: RemoteTurn, *, is_used: bool) -> None:
        self._remote = remote
        self._is_used = is_used
        self._news = threading.Event()
        self._thread = PeriodicThread(self._listen, name="remote-hints", pause_seconds=RESUBSCRIBE_SECONDS)
        self.is_subscribed = False

    def __enter__(self) -> Self:
        if self._is_used:
            self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._thread.stop()

    def wait(self, seconds: float) -> None:
        """Wait until there may be news, at least a moment. Raises Stopped."""
        self._remote.pause(BETWEEN_LOOKS_SECONDS)
        until = time.monotonic() + seconds - BETWEEN_LOOKS_SECONDS
        while not self._news.is_set() and time.monotonic() < until:
            self._news.wait(BETWEEN_LOOKS_SECONDS)
            self._remote.check()
        self._news.clear()

    def _listen(self) -> None:
        if self._is_unwanted():
            return
        connection = self._remote.connection
        try:
            call = connection.binding.subscribe(self._remote.remote_task_id or "")
            with connection.stream(call, is_unwanted=self._is_unwanted) as results:
                for _ in results:
                    self.is_subscribed = True
                    self._news.set()
                    if self._is_unwanted():
                        return
        except (Refused, DomainError):
            pass  # the task is read anyway
        self.is_subscribed = False
        self._news.set()

    def _is_unwanted(self) -> bool:
        return self._thread.is_stopping or self._remote.cancellation.is_set()
