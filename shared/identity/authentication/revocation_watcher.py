"""Check the callers and read grants of running requests every two seconds, and mark those that were revoked.

One thread per process checks all streams, waits and downloads, once per credential or read grant. It records the error
and wakes the code that runs the request, which ends it. While the database is unavailable, requests continue.
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

    `current` reads it again and raises the error with which a revoked request ends.
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
        """Record the error with which the request must end, and wake it."""
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
    """The watched requests of this process; the thread starts with the first."""

    def __init__(self, revalidator: CallerRevalidator) -> None:
        self._revalidator = revalidator
        self._calls = InFlight({"running-work": self._check_all}, pause_seconds=CHECK_SECONDS)

    def watch(
        self, caller: Caller, authorize: Callable[[Caller], object], wake: Callable[[], None]
    ) -> WatchedCall:
        """Watch a request. If it must end, `wake` is called once, from the watcher's thread.

        `authorize` gets the revalidated caller and raises a DomainError if the caller has lost the permission. A
        ServiceUnavailable from it leaves the request running.
        """
        # Calls of one credential in different organizations have different rows, so they are checked separately.
        key = (caller.proof, caller.organization_id, caller.is_suspended)
        return self.watch_permit(
            Permit(key=key, current=partial(self._revalidator.revalidate, caller)), authorize, wake
        )

    def watch_permit(
        self, permit: Permit, authorize: Callable[[Any], object], wake: Callable[[], None]
    ) -> WatchedCall:
        """Watch a request that is authorized by `permit`; `authorize` gets the result of `permit.current`."""
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
            except Exception:  # an error of one group must not keep the other groups from their check
                log.exception("calls.not_checked")

    def _check(self, calls: list[WatchedCall]) -> None:
        try:
            current = calls[0].permit.current()
        # An unavailable database proves no revocation; ending every stream would turn it into a larger outage.
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
        # A revoked call stays registered until its own code closes it; do not wake it twice.
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
