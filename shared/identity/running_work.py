"""Check the callers of all calls under way again, every few seconds, and mark those that were revoked.

One thread asks for all streams, waits and downloads of a process, once per credential. It only notes why a call must
end and wakes the code that carries it out. While the database does not answer, calls go on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Self

from shared.errors import DomainError, Unavailable
from shared.identity.callers import Caller
from shared.identity.rechecking import Rechecks
from shared.periodic_thread import InFlight
from shared.telemetry import get_logger

log = get_logger(__name__)

CHECK_SECONDS = 2.0


class RunningCall:
    """One call under way; a context manager for as long as it is."""

    def __init__(
        self,
        others: InFlight[RunningCall],
        caller: Caller,
        authorize: Callable[[Caller], object],
        wake: Callable[[], None],
    ) -> None:
        self.caller = caller
        self.authorize = authorize
        self.revocation: DomainError | None = None
        self._others = others
        self._wake = wake

    def end(self, revocation: DomainError) -> None:
        """Record why the call is to end."""
        self.revocation = revocation
        self._wake()

    def close(self) -> None:
        """Stop watching the call; a second time does nothing."""
        self._others.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RunningWork:
    """The calls of this process; the thread begins with the first."""

    def __init__(self, rechecks: Rechecks) -> None:
        self._rechecks = rechecks
        self._calls = InFlight({"running-work": self._check_all}, pause_seconds=CHECK_SECONDS)

    def watch(
        self, caller: Caller, authorize: Callable[[Caller], object], wake: Callable[[], None]
    ) -> RunningCall:
        """Watch a call; `wake` is called once, at once and from another thread, when it must end.

        `authorize` is given the caller as the rows have it, and raises if it may no longer do this.
        """
        call = RunningCall(self._calls, caller, authorize, wake)
        self._calls.add(call)
        return call

    @property
    def watched(self) -> int:
        """How many calls are under way."""
        return len(self._calls)

    def close(self) -> None:
        """Stop the thread."""
        self._calls.stop()

    def _check_all(self, calls: Sequence[RunningCall]) -> None:
        for same in _by_credential(calls):
            try:
                self._check(same)
            except Exception:  # the others must be looked at whatever became of these
                log.exception("calls.not_checked")

    def _check(self, calls: list[RunningCall]) -> None:
        try:
            current = self._rechecks.current(calls[0].caller)
        except Unavailable as error:
            log.warning("calls.not_checked", error=error.code)
        except DomainError as revocation:
            log.info("calls.revoked", code=revocation.code, count=len(calls))
            for call in calls:
                call.end(revocation)
        else:
            for call in calls:
                _authorize_again(call, current)


def _by_credential(calls: Sequence[RunningCall]) -> list[list[RunningCall]]:
    grouped: dict[Hashable, list[RunningCall]] = {}
    for call in calls:
        if call.revocation is None:
            key = (call.caller.proof, call.caller.organization_id, call.caller.is_suspended)
            grouped.setdefault(key, []).append(call)
    return list(grouped.values())


def _authorize_again(call: RunningCall, current: Caller) -> None:
    """End a call whose caller has lost the permission to it."""
    try:
        call.authorize(current)
    except DomainError as refusal:
        log.info("calls.revoked", code=refusal.code, count=1)
        call.end(refusal)
