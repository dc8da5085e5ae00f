"""Charge organizations for storage, with one ledger entry per UTC day, and refuse new content while storage is unpaid.

`shared/files/metering/storage_charges.py` measures the days. An organization that cannot pay gets a grace period; after
that it cannot store new content until its balance is sufficient again. Stored content stays readable, renewable and
deletable.
"""

from datetime import timedelta
from uuid import UUID

from sqlalchemy import Boolean, ColumnElement, func, text

from shared import failpoints
from shared.credits.errors import StorageUnpaid
from shared.db.database import Database
from shared.observability.telemetry import SWEPT
from shared.runtime.batches import must_stop

BATCH_SIZE = 50
"""Organizations charged in one transaction, which locks their balances for some tens of milliseconds."""
MAX_DAYS = 40
"""Days charged to one organization in one transaction."""

_DUE = text(
    """
SELECT DISTINCT organization_id FROM storage_days
WHERE charged_at IS NULL AND price IS NOT NULL AND (organization_id > :after OR :after IS NULL)
ORDER BY organization_id LIMIT :limit
"""
)
# Every transaction that locks several balances locks them by ascending id, so that two such transactions cannot
# deadlock.
_CHARGE = text(
    """
SELECT coalesce(sum(credits_charge_storage(id, :grace, :limit)), 0) FROM unnest(CAST(:ids AS uuid[])) AS id
"""
)


def storage_is_refused(payer_id: ColumnElement[UUID]) -> ColumnElement[bool]:
    """Return the SQL condition that a payer may not store new content; False for an unknown payer."""
    return func.credits_storage_is_refused(payer_id, type_=Boolean)


def refuse_unpaid_storage(*, is_refused: bool) -> None:
    """Raise StorageUnpaid if the caller's statement has found that storage is refused (`storage_is_refused`)."""
    if is_refused:
        raise StorageUnpaid


def charge_storage(database: Database, *, grace: timedelta) -> int:
    """Charge every measured day that is not charged yet. Return the number of charged days.

    Concurrent runs are safe: the lock of each balance serializes them, and a charged day is skipped.
    """
    charged = 0
    after: str | None = None
    while ids := _due(database, after):
        with database.autocommit() as session:
            parameters = {"ids": ids, "grace": grace, "limit": MAX_DAYS}
            charged += int(session.execute(_CHARGE, parameters).scalar_one())
        failpoints.hit("storage.charged")
        # Continue after the last id: if a charge must wait, a loop from the first id would select its organization
        # for ever.
        after = ids[-1]
        if must_stop():
            break
    SWEPT.labels("storage_days").inc(charged)
    return charged


def _due(database: Database, after: str | None) -> list[str]:
    with database.autocommit() as session:
        found = session.execute(_DUE, {"after": after, "limit": BATCH_SIZE}).scalars()
        return [str(at) for at in found]
