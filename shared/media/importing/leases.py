"""Renew the leases of attempts in a separate thread, because an attempt may wait for a silent source.

The renewal stops when the attempt ends, when the lease is lost, or at the time limit of the attempt. The time limit
prevents a worker that hangs from keeping an import forever.
"""

import time
from collections.abc import Sequence

from shared.db.database import Database
from shared.errors import DomainError
from shared.media.importing.claims import LeaseLost, renew_lease
from shared.media.importing.imports import Import
from shared.observability.telemetry import get_logger
from shared.runtime.periodic_thread import InFlight

log = get_logger(__name__)

RENEWAL_SECONDS = 15.0
"""The time between renewals: a quarter of a lease, so that three renewals may fail."""


class RenewedLease:
    """The lease of a claimed import, which is renewed until the attempt ends."""

    def __init__(self, database: Database, claimed: Import, *, longest_seconds: float) -> None:
        self._database = database
        self._claimed = claimed
        self._ends_at = time.monotonic() + longest_seconds
        self._is_lost = False

    def check(self) -> None:
        """Raise LeaseLost if another worker has the import."""
        if self._is_lost:
            raise LeaseLost

    def renew(self) -> None:
        """Renew the lease, unless it is lost or the attempt's time limit has passed."""
        # After the time limit, do not renew the lease: it expires, and another worker claims the import.
        if self._is_lost or time.monotonic() >= self._ends_at:
            return
        try:
            with self._database.autocommit() as session:
                renew_lease(session, self._claimed)
        except LeaseLost:
            self._is_lost = True
        # Do not treat the lease as lost: the database may respond again before the lease expires.
        except DomainError as error:
            log.warning("import.lease_not_renewed", import_id=self._claimed.id, error=error.code)


def start_lease_renewal() -> InFlight[RenewedLease]:
    """Return the registry of a process's running attempts, whose leases a thread renews."""
    return InFlight({"import-leases": _renew_all}, pause_seconds=RENEWAL_SECONDS)


def _renew_all(leases: Sequence[RenewedLease]) -> None:
    for lease in leases:
        lease.renew()
