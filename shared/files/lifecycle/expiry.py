"""End files whose deadline has passed, and remove their bytes.

Readers do not depend on this sweep, because each read compares the deadline with the clock. The sweep reads the index
of deadlines, the earliest first. If more files are due than a batch can hold, a batch has some files of each
organization. The sweep checks the deadline again after it has locked the row, because a renewal may have committed
before.
"""

from collections.abc import Sequence

from sqlalchemy import text

from shared import failpoints
from shared.db.database import Database
from shared.fairness.fair_queueing import first_of_each, select_round_robin
from shared.files.blobs.base import Blob, BlobStore
from shared.files.lifecycle.content_disposal import (
    ContentKind,
    EndedFile,
    enqueue_for_collection,
    split_by_size,
)
from shared.files.lifecycle.garbage_collection import LEASE, remove_claimed
from shared.files.lifecycle.placement import blob_of
from shared.files.stores import StoreContext
from shared.messaging.jobs import sweep
from shared.messaging.queues import RETENTION
from shared.observability.telemetry import SWEPT
from shared.runtime.batches import drain

BATCH_SIZE = 500

_FINITE = "state = 'Available' AND retention_expires_at IS NOT NULL"
_OLDEST = text(
    f"""
SELECT id FROM files WHERE {_FINITE} AND retention_expires_at <= now()
ORDER BY retention_expires_at LIMIT :limit FOR UPDATE SKIP LOCKED
"""  # noqa: S608 (a condition from the code)
)
_HEADS = first_of_each(table="files", tenant="organization_id", ready=_FINITE, order="retention_expires_at")
FAIR = f"SELECT id FROM ({_HEADS}) due ORDER BY place, random() LIMIT :limit"  # noqa: S608
_FAIR = text(FAIR)
_END = text(
    """
WITH due AS (
    SELECT id FROM files
    WHERE id = ANY (CAST(:ids AS uuid[])) AND state = 'Available' AND retention_expires_at <= now()
    FOR UPDATE SKIP LOCKED
)
UPDATE files SET state = 'Expired', ended_at = files.retention_expires_at
FROM due WHERE files.id = due.id RETURNING files.id, files.organization_id, files.revision AS versions
"""
)

# Use a separate statement after the rows are locked: the snapshot of _END may be older than the last replace of a file,
# and the bytes of a version that _END does not see would never be removed. This statement also takes the lease, so that
# the collector need not claim the blobs.

_MARK = text(
    """
UPDATE blobs SET state = 'doomed', lease_until = now() + :lease
FROM file_versions
WHERE file_versions.file_id = ANY (CAST(:file_ids AS uuid[])) AND blobs.version_id = file_versions.id
RETURNING blobs.version_id, blobs.byte_size, blobs.upload_id, blobs.checksum
"""
)


@sweep("files.expire_due", queue=RETENTION, every_seconds=5)
def _expire_due(context: StoreContext) -> int:
    return expire_due(context.database, context.store)


def expire_due(database: Database, store: BlobStore) -> int:
    """End each file whose deadline has passed, in batches. Return the number of ended files."""

    def batch() -> int:
        expired, marked = _expire(database)
        if marked:
            remove_claimed(database, store, marked)
        return expired

    return drain(batch, size=BATCH_SIZE)


def _expire(database: Database) -> tuple[int, Sequence[Blob]]:
    with database.transaction() as session:
        due = select_round_robin(session, oldest=_OLDEST, fair=_FAIR, limit=BATCH_SIZE)
        ids = {"ids": [str(file_id) for file_id in due]}
        ended = [EndedFile(**row) for row in session.execute(_END, ids).mappings()] if due else []
        # Leave files with many versions to the collector: marking them here would hold the locks of the batch for long.
        few, many = split_by_size(ended)
        enqueue_for_collection(session, ContentKind.FILE, {file.id: file.organization_id for file in many})
        values = {"file_ids": [str(file.id) for file in few], "lease": LEASE}
        rows = session.execute(_MARK, values).all() if few else []
        failpoints.hit("expiry.before_commit")
    failpoints.hit("expiry.expired")
    SWEPT.labels("expired").inc(len(ended))
    return len(ended), [blob_of(row) for row in rows]
