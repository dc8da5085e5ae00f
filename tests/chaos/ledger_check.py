"""The ledger check at the end: recompute the storage charge independently, then run all reconciliations.

Storage is charged by the day, so the check ends the day at this moment. The charge for the bytes stored since midnight
must equal the sum over the versions.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from shared.credits.reconciliation import reconcile
from shared.credits.usage.rollups import roll_up_usage
from shared.files.metering.storage_charges import accrue_storage
from shared.files.metering.storage_check import find_storage_discrepancies
from shared.files.metering.storage_prices import StoragePrice
from tests.chaos.installation import STORAGE_PRICE, Installation
from tests.support.data.inventory import query

PRICE = STORAGE_PRICE * 1_000_000
"""µcr for a GiB and 30 days."""
_UNIT = (1 << 30) * 30 * 24 * 3600 * 1_000_000
_STORED = """
SELECT f.payer_id::text, v.byte_size, v.created_at, coalesce(f.ended_at, f.retention_expires_at)
FROM file_versions v JOIN files f ON f.id = v.file_id
"""
_CHARGED = (
    "SELECT organization_id::text, -amount FROM ledger_entries WHERE kind = 'storage' AND reference = %s"
)


def find_ledger_faults(installation: Installation) -> Iterator[str]:
    """Charge today's storage, and yield every disagreement in the ledger."""
    database = installation.database
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    midnight = today + timedelta(days=1)
    slack = datetime.now(UTC) - midnight - timedelta(seconds=1)
    accrue_storage(database, price=StoragePrice(amount=PRICE), grace=timedelta(0), slack=slack)
    expected = _expected(installation, today, midnight)
    charged = dict(query(installation.stack, _CHARGED, (today.date().isoformat(),)))
    if charged != expected:
        yield f"storage was charged as {charged}, and is {expected}"
    roll_up_usage(database, slack=timedelta(0))
    yield from (f"mismeasured: {at}" for at in find_storage_discrepancies(database))
    with database.transaction() as session:
        yield from (f"{at.kind} {at.reference}: {at.found}, not {at.expected}" for at in reconcile(session))


def _expected(installation: Installation, today: datetime, midnight: datetime) -> dict[str, int]:
    """Return each payer's charge for today, computed from the versions: bytes times microseconds, rounded down once."""
    sums: dict[str, int] = {}
    for payer_id, byte_size, created_at, ended_at in query(installation.stack, _STORED):
        stored_for = min(ended_at or midnight, midnight) - max(created_at, today)
        microseconds = max(timedelta(0), stored_for) // timedelta(microseconds=1)
        sums[payer_id] = sums.get(payer_id, 0) + byte_size * microseconds
    costs = {payer_id: total * PRICE // _UNIT for payer_id, total in sums.items()}
    return {payer_id: cost for payer_id, cost in costs.items() if cost}
