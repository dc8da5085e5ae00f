"""End files whose deadline has passed, and remove their bytes.

Nothing waits for this: content is unavailable from the very moment of its deadline, because every read compares it
with the clock. The sweep walks the index of deadlines from its lower end, so that its cost follows what has expired
and not what is stored. Under the row's lock it looks at the deadline again: a renewal that came first wins.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import text

from shared import faults
from shared.database import Database
from shared.files.blobs.base import Blob, BlobStore
from shared.files.collection import LEASE, remove_claimed
from shared.files.placement import blob_of
from shared.telemetry import SWEPT

BATCH_SIZE = 500

# One statement a batch: end the files, doom their bytes, and take the lease on them, so that they need no second claim.
_EXPIRE = text(
    """
WITH due AS (
    SELECT id FROM files
    WHERE state = 'Available' AND retention_expires_at IS NOT NULL AND retention_expires_at <= now()
    ORDER BY retention_expires_at LIMIT :batch_size FOR UPDATE SKIP LOCKED
),
expired AS (
    UPDATE files SET state = 'Expired', ended_at = files.retention_expires_at
    FROM due WHERE files.id = due.id RETURNING files.id
),
doomed AS (
    UPDATE blobs SET state = 'doomed', lease_until = now() + :lease
    FROM file_versions, expired
    WHERE file_versions.file_id = expired.id AND blobs.version_id = file_versions.id
    RETURNING blobs.version_id, blobs.byte_size, blobs.upload_id, blobs.checksum
)
SELECT (SELECT count(*) FROM expired) AS expired, doomed.* FROM (SELECT 1) AS one LEFT JOIN doomed ON true
"""
)


def expire_due(database: Database, store: BlobStore) -> int:
    """End every file whose deadline has passed, batch by batch until none is left; return how many ended."""
    ended = 0
    while True:
        expired, doomed = _expire(database)
        ended += expired
        if doomed:
            remove_claimed(database, store, doomed)
        if expired < BATCH_SIZE:
            return ended


def _expire(database: Database) -> tuple[int, Sequence[Blob]]:
    with database.autocommit() as session:
        rows = session.execute(_EXPIRE, {"batch_size": BATCH_SIZE, "lease": LEASE}).all()
    faults.reach("expiry.expired")
    expired: int = rows[0].expired
    SWEPT.labels("expired").inc(expired)
    return expired, [blob_of(row) for row in rows if row.version_id is not None]
