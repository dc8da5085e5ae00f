"""Renew an attempt's lease in a thread of its own, because the attempt may wait on a silent source for longer.

Ends with the attempt, with the loss of the lease, or at the attempt's time limit: a hanging worker must not hold an
import for ever.
"""

import time
from types import TracebackType
from typing import Self

from shared.database import Database
from shared.errors import DomainError
from shared.media.claims import LeaseLost, renew_lease
from shared.media.imports import Import
from shared.periodic_thread import PeriodicThread
from shared.telemetry import get_logger

log = get_logger(__name__)

RENEWAL_SECONDS = 15.0
"""A quarter of a lease: three renewals may fail."""


class KeptLease:
    """The lease of a claimed import, while it is a context."""

    def __init__(self, database: Database, claimed: Import, *, longest_seconds: float) -> None:
        self._database = database
        self._claimed = claimed
        self._ends_at = time.monotonic() + longest_seconds
        self._is_lost = False
        self._thread = PeriodicThread(
            self._keep, name="import-lease", pause_seconds=RENEWAL_SECONDS, starts_with_pause=True
        )

    def check(self) -> None:
        """Raise LeaseLost if somebody else has the import by now."""
        if self._is_lost:
            raise LeaseLost

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._thread.stop(wait=True)

    def _keep(self) -> None:
        if not self._is_lost and time.monotonic() < self._ends_at:
            self._renew()

    def _renew(self) -> None:
        try:
            with self._database.autocommit() as session:
                renew_lease(session, self._claimed)
        except LeaseLost:
            self._is_lost = True
        except DomainError as error:
            log.warning("import.lease_not_renewed", import_id=self._claimed.id, error=error.code)
