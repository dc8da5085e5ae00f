"""Check the callers and links of all calls under way again, every few seconds, and mark those that were revoked.

One thread asks for all streams, waits and downloads of a process, once per credential or link. It only notes why a call
must end and wakes the code that carries it out. While the database does not answer, calls go on.
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
    """What calls under way rest on, the same for all with its `key`.

    `current` reads it again, and raises what a request is answered by whose permit was revoked.
    """

    key: Hashable
    current: Callable[[], object]


class WatchedCall:
    """One call under way; a context manager for as long as it is."""

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


class RevocationWatcher:
    """The calls of this process; the thread begins with the first."""

    def __init__(self, revalidator: CallerRevalidator) -> None:
        self._revalidator = revalidator
        self._calls = InFlight({"running-work": self._check_all}, pause_seconds=CHECK_SECONDS)

    def watch(
        self, caller: Caller, authorize: Callable[[Caller], object], wake: Callable[[], None]
    ) -> WatchedCall:
        """Watch a call; `wake` is called once, at once and from another thread, when it must end.

        `authorize` is given the caller as the rows have it, and raises if it may no longer do this. It may read what
        the process keeps for a moment; Unavailable tells nothing.
        """
        key = (caller.proof, caller.organization_id, caller.is_suspended)
        return self.watch_permit(
            Permit(key=key, current=partial(self._revalidator.revalidate, caller)), authorize, wake
        )

    def watch_permit(
        self, permit: Permit, authorize: Callable[[Any], object], wake: Callable[[], None]
    ) -> WatchedCall:
        """Watch a call that rests on something else than a caller; `authorize` is given what `permit` reads."""
        call = WatchedCall(self._calls, permit, authorize, wake)
        self._calls.add(call)
        return call

    @property
    def watched(self) -> int:
        """How many calls are under way."""
        return len(self._calls)

    def close(self) -> None:
        """Stop the thread."""
        self._calls.stop()

    def _check_all(self, calls: Sequence[WatchedCall]) -> None:
        for same in _by_permit(calls):
            try:
                self._check(same)
            except Exception:  # the others must be looked at whatever became of these
                log.exception("calls.not_checked")

    def _check(self, calls: list[WatchedCall]) -> None:
        try:
            current = calls[0].permit.current()
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
        if call.revocation is None:
            grouped.setdefault(call.permit.key, []).append(call)
    return list(grouped.values())


def _authorize_again(call: WatchedCall, current: object) -> None:
    """End a call whose caller has lost the permission to it, or what it is about was disabled."""
    try:
        call.authorize(current)
    except ServiceUnavailable as error:
        log.warning("calls.not_checked", error=error.code)
    except DomainError as refusal:
        log.info("calls.revoked", code=refusal.code, count=1)
        call.end(refusal)
