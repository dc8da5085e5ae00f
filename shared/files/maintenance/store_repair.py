"""Repair the discrepancies that an audit finds, if the repair cannot lose content.

Each repair checks the rows again in its own statement, and may be repeated. A repair never deletes bytes of an existing
file. It does not delete bytes without a row either, because a newer backup of the database may have their row.
"""

from sqlalchemy import text

from shared.db.database import Database
from shared.files.blobs.base import BlobStore
from shared.files.lifecycle.placement import blob_of
from shared.files.maintenance.scrubbing import mark
from shared.files.maintenance.store_audit import Discrepancy, DiscrepancyKind, find_details, is_as_recorded
from shared.files.sweeps import claim_orphans
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

_KEEP = text(
    """
INSERT INTO blobs (version_id, state, byte_size)
SELECT version.id, 'live', version.byte_size FROM file_versions AS version
JOIN files AS file ON file.id = version.file_id AND file.state = 'Available'
WHERE version.id = :version_id FOR UPDATE OF file
ON CONFLICT DO NOTHING
"""
)


def repair(database: Database, store: BlobStore, found: Discrepancy) -> bool:
    """Repair one discrepancy if that is safe; return whether it was repaired.

    Raises BlobStoreUnavailable, ServiceUnavailable.
    """
    if found.kind is DiscrepancyKind.ENDED:
        is_mended = bool(claim_orphans(database, [found.version_id]))
    elif found.kind is DiscrepancyKind.UNPLACED:
        is_mended = _place(database, store, found)
    elif found.kind is DiscrepancyKind.ROWLESS:
        is_mended = _keep(database, store, found)
    elif found.kind is DiscrepancyKind.SOUND:
        is_mended = mark(database, found.version_id, is_sound=True)
    else:
        _refuse_to_readers(database, found)
        return False
    log.info("audit.mended", kind=found.kind, version_id=found.version_id, is_mended=is_mended)
    return is_mended


def discard(database: Database, found: Discrepancy) -> bool:
    """Mark bytes that the database does not know for deletion; an operator has requested it."""
    return found.kind is DiscrepancyKind.UNKNOWN and bool(claim_orphans(database, [found.version_id]))


def _refuse_to_readers(database: Database, found: Discrepancy) -> None:
    """Mark content with absent or different bytes as damaged, so that readers get an error and no wrong byte."""
    if found.kind is not DiscrepancyKind.UNKNOWN and not found.is_marked:
        mark(database, found.version_id, is_sound=False)


def _place(database: Database, store: BlobStore, found: Discrepancy) -> bool:
    rows = [row for row in find_details(database, [found.version_id]) if row.state == "live"]
    return bool(rows) and not store.place([blob_of(row) for row in rows])


def _keep(database: Database, store: BlobStore, found: Discrepancy) -> bool:
    """Insert the missing row of a version again, if the stored bytes match its digest."""
    rows = [row for row in find_details(database, [found.version_id]) if row.state is None]
    # Insert no row if the digest does not match: the bytes may belong to an unfinished copy.
    if not rows or not is_as_recorded(store, rows[0]):
        return False
    with database.transaction() as session:
        return session.execute(_KEEP, {"version_id": found.version_id}).rowcount == 1
