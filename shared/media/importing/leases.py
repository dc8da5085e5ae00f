"""Renew the leases of attempts from a thread of its own, because an attempt may wait on a silent source.

Renewal ends with the attempt, when the lease is lost, or at the attempt's time limit: a hanging worker must not keep
an import for ever.
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
"""A quarter of a lease: three renewals may fail."""


class RenewedLease:
    """The lease of a claimed import."""

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
        # Past the limit the lease simply expires, and another worker takes the import over.
        if self._is_lost or time.monotonic() >= self._ends_at:
            return
        try:
            with self._database.autocommit() as session:
                renew_lease(session, self._claimed)
        except LeaseLost:
            self._is_lost = True
        # Not lost yet: the database may be back before the lease expires.
        except DomainError as error:
            log.warning("import.lease_not_renewed", import_id=self._claimed.id, error=error.code)


def start_lease_renewal() -> InFlight[RenewedLease]:
    """Return the renewal of all attempts of a process."""
    return InFlight({"import-leases": _renew_all}, pause_seconds=RENEWAL_SECONDS)


def _renew_all(leases: Sequence[RenewedLease]) -> None:
    for lease in leases:
        lease.renew()
