"""Check the callers and read grants of running requests every two seconds, and end requests that lost authority.

One thread per process checks all streams, waits and downloads, once per credential or read grant. If a request must
end, the thread records the error and wakes the code that runs the request; that code ends the request. While the
database is unavailable, requests continue.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from shared.errors import DomainError, ServiceUnavailable
from shared.identity.access.callers import Caller
from shared.identity.authentication.revalidation import CallerRevalidator
from shared.observability.telemetry import get_logger
from shared.runtime.periodic_thread import InFlight

log = get_logger(__name__)

CHECK_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """The authority of a running request: a caller or a read grant. Requests with equal `key` are checked together.

    `current` reads the authority again. If it was revoked, `current` raises the error with which the request ends.
    """

    key: Hashable
    current: Callable[[], object]


class WatchedCall:
    """A watched request; a context manager that stops the watch."""

    def __init__(
        self,
        others: InFlight[WatchedCall],
        permit: Permit,
        authorize: Callable[[Any], object],
        wake: Callable[[], None],
    ) -> None:
        self.permit = permit
        self.authorize = authorize
        self.revocation: DomainError | None = None
        self._others = others
        self._wake = wake

    def end(self, revocation: DomainError) -> None:
        """Record the error with which the request must end, and wake the code that runs the request."""
        self.revocation = revocation
        self._wake()

    def close(self) -> None:
        """Stop watching; a second call does nothing."""
        self._others.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RevocationWatcher:
    """The watched requests of this process. The thread starts with the first request."""

    def __init__(self, revalidator: CallerRevalidator) -> None:
        self._revalidator = revalidator
        self._calls = InFlight({"running-work": self._check_all}, pause_seconds=CHECK_SECONDS)

    def watch(
        self, caller: Caller, authorize: Callable[[Caller], object], wake: Callable[[], None]
    ) -> WatchedCall:
        """Watch a request. If it must end, `wake` is called once, from the watcher's thread.

        `authorize` receives the revalidated caller and raises a DomainError if the caller has lost the permission.
        If `authorize` raises ServiceUnavailable, the request continues.
        """
        # Include the organization: calls of one credential in different organizations depend on different rows, so
        # they are checked separately.
        key = (caller.proof, caller.organization_id, caller.is_suspended)
        return self.watch_permit(
            Permit(key=key, current=partial(self._revalidator.revalidate, caller)), authorize, wake
        )

    def watch_permit(
        self, permit: Permit, authorize: Callable[[Any], object], wake: Callable[[], None]
    ) -> WatchedCall:
        """Watch a request that `permit` authorizes. `authorize` receives the result of `permit.current`."""
        call = WatchedCall(self._calls, permit, authorize, wake)
        self._calls.add(call)
        return call

    @property
    def watched(self) -> int:
        """The number of watched requests."""
        return len(self._calls)

    def close(self) -> None:
        """Stop the thread."""
        self._calls.stop()

    def _check_all(self, calls: Sequence[WatchedCall]) -> None:
        for same in _by_permit(calls):
            try:
                self._check(same)
            except Exception:  # an error in one group must not stop the checks of the other groups
                log.exception("calls.not_checked")

    def _check(self, calls: list[WatchedCall]) -> None:
        try:
            current = calls[0].permit.current()
        # Continue: an unavailable database proves no revocation, and ending every stream would make the outage
        # larger.
        except ServiceUnavailable as error:
            log.warning("calls.not_checked", error=error.code)
        except DomainError as revocation:
            log.info("calls.revoked", code=revocation.code, count=len(calls))
            for call in calls:
                call.end(revocation)
        else:
            for call in calls:
                _authorize_again(call, current)


def _by_permit(calls: Sequence[WatchedCall]) -> list[list[WatchedCall]]:
    grouped: dict[Hashable, list[WatchedCall]] = {}
    for call in calls:
        # A revoked call stays registered until the code that runs it closes it, so do not wake that code twice.
        if call.revocation is None:
            grouped.setdefault(call.permit.key, []).append(call)
    return list(grouped.values())


def _authorize_again(call: WatchedCall, current: object) -> None:
    """End a request after its caller has lost the permission, or its resource was disabled."""
    try:
        call.authorize(current)
    except ServiceUnavailable as error:
        log.warning("calls.not_checked", error=error.code)
    except DomainError as refusal:
        log.info("calls.revoked", code=refusal.code, count=1)
        call.end(refusal)
