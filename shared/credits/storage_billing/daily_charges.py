"""Charge organizations for what they stored, and say who may store no more.

`shared/files/metering/storage_charges.py` measures the days; here each day of each organization becomes one entry,
once. An organization that cannot pay owes, and after a grace may store nothing more until it has credits again. What it
has stays readable, renewable and deletable.
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
"""Organizations charged in one transaction, which holds their balances for a few tens of milliseconds."""
MAX_DAYS = 40
"""Charged to one organization in one transaction."""

_DUE = text(
    """
SELECT DISTINCT organization_id FROM storage_days
WHERE charged_at IS NULL AND price IS NOT NULL AND (organization_id > :after OR :after IS NULL)
ORDER BY organization_id LIMIT :limit
"""
)
# Ordered by id, like every transaction that locks several balances.
_CHARGE = text(
    """
SELECT coalesce(sum(credits_charge_storage(id, :grace, :limit)), 0) FROM unnest(CAST(:ids AS uuid[])) AS id
"""
)


def storage_is_refused(payer_id: ColumnElement[UUID]) -> ColumnElement[bool]:
    """Ask, as part of a statement of the caller's, whether a payer may store nothing more; a missing payer may."""
    return func.credits_storage_is_refused(payer_id, type_=Boolean)


def refuse_unpaid_storage(*, is_refused: bool) -> None:
    """Raise StorageUnpaid for what a statement of the caller's has found to be refused."""
    if is_refused:
        raise StorageUnpaid


def charge_storage(database: Database, *, grace: timedelta) -> int:
    """Enter every measured day that is not charged yet; return how many.

    Two at once share the work under the locks of the balances.
    """
    charged = 0
    after: str | None = None
    while ids := _due(database, after):
        with database.autocommit() as session:
            parameters = {"ids": ids, "grace": grace, "limit": MAX_DAYS}
            charged += int(session.execute(_CHARGE, parameters).scalar_one())
        failpoints.hit("storage.charged")
        after = ids[-1]
        if must_stop():
            break
    SWEPT.labels("storage_days").inc(charged)
    return charged


def _due(database: Database, after: str | None) -> list[str]:
    with database.autocommit() as session:
        found = session.execute(_DUE, {"after": after, "limit": BATCH_SIZE}).scalars()
        return [str(at) for at in found]
