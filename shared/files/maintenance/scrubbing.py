"""Read stored content again from time to time, so that decayed bytes are detected by the service and not by a reader.

Each live blob is compared with its digest once per interval, the longest unread first. A blob that differs is marked
damaged and refused to readers; its bytes stay, so that an operator can restore them, and it is read again an hour
later. A run claims blobs by moving their date; a run that crashes leaves its claims until the next interval. Stores
that verify themselves, as S3 does, are skipped.
"""

import hashlib
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Interval, Row, bindparam, func, text, update

from shared import failpoints
from shared.db.database import Database
from shared.errors import DomainError
from shared.files.blobs.base import BlobDamaged, BlobMissing, BlobStore, BlobStoreUnavailable
from shared.files.blobs.chunks import ChunkChecksums
from shared.files.stores import StoreContext
from shared.files.tables import blobs
from shared.messaging.jobs import sweep
from shared.messaging.queues import RETENTION
from shared.observability.telemetry import SCRUBBED, get_logger
from shared.runtime.batches import is_over

log = get_logger(__name__)

BATCH_SIZE = 20
CHUNK_BYTES = 1 << 20
# Often enough that restored content is readable soon; rarely enough not to use the budget for damaged content.
DAMAGED_AGAIN = timedelta(hours=1)

_CLAIM = text(
    """
WITH unread AS (
    SELECT version_id FROM blobs WHERE state = 'live' AND verified_at < now() - :interval
    ORDER BY verified_at LIMIT :batch_size FOR UPDATE SKIP LOCKED
),
damaged AS (
    SELECT version_id FROM blobs WHERE damaged_at IS NOT NULL AND state = 'live' AND verified_at < now() - :again
    LIMIT :batch_size FOR UPDATE SKIP LOCKED
),
due AS (SELECT version_id FROM unread UNION SELECT version_id FROM damaged)
UPDATE blobs SET verified_at = now() FROM due LEFT JOIN file_versions AS version ON version.id = due.version_id
WHERE blobs.version_id = due.version_id
RETURNING blobs.version_id, blobs.byte_size, blobs.damaged_at, blobs.chunk_checksums, version.content_sha256
"""
).bindparams(bindparam("interval", type_=Interval), bindparam("again", type_=Interval))


@sweep("files.scrub_content", queue=RETENTION, every_seconds=60)
def _scrub_content(context: StoreContext) -> int:
    settings = context.settings
    if settings.scrub_interval_days == 0 or context.store.verifies_itself:
        return 0
    interval = timedelta(days=settings.scrub_interval_days)
    return scrub(context.database, context.store, interval, budget_bytes=settings.scrub_bytes_per_minute)


def scrub(database: Database, store: BlobStore, interval: timedelta, *, budget_bytes: int) -> int:
    """Compare content with its digests, the longest unread first, up to the budget. Return the number of blobs read."""
    store.require()
    read = spent_bytes = 0
    while spent_bytes < budget_bytes:
        claimed = _claim(database, interval)
        for row in claimed:
            # A piece of a resumable upload has no digest: only its date moves on, so that it delays no other blob. Its
            # checksums are checked when the upload is complete.
            if row.content_sha256 is None:
                continue
            if not _verify(database, store, row):
                _put_back(database, [row.version_id for row in claimed], interval)
                return read
            read += 1
            spent_bytes += row.byte_size
        if len(claimed) < BATCH_SIZE or is_over():
            break
    return read


def _claim(database: Database, interval: timedelta) -> list[Row[Any]]:
    with database.autocommit() as session:
        values = {"interval": interval, "again": DAMAGED_AGAIN, "batch_size": BATCH_SIZE}
        claimed = list(session.execute(_CLAIM, values).all())
    failpoints.hit("scrub.claimed")
    return claimed


def _verify(database: Database, store: BlobStore, row: Row[Any]) -> bool:
    """Read one blob and record the result; return False if the store did not respond."""
    try:
        digest, checksums = read_digest(store, row.version_id, row.byte_size)
        is_sound = digest == bytes(row.content_sha256)
        if is_sound and row.chunk_checksums is None:
            _keep_checksums(database, row.version_id, checksums)
    # The store did not respond, so the content was not checked. Do not mark it.
    except BlobStoreUnavailable:
        return False
    except (BlobMissing, BlobDamaged):
        is_sound = False
    outcome = "sound" if is_sound else "damaged"
    if (not is_sound or row.damaged_at is not None) and not mark(database, row.version_id, is_sound=is_sound):
        outcome = "removed"
    SCRUBBED.labels(outcome).inc()
    return True


def report_damage(database: Database, version_id: UUID) -> None:
    """Mark content that a reader found damaged; if it cannot be marked now, only log it."""
    SCRUBBED.labels("damaged").inc()
    try:
        is_marked = mark(database, version_id, is_sound=False)
    except DomainError:
        is_marked = False
    if not is_marked:
        log.warning("blob.damaged", version_id=version_id)


def read_digest(store: BlobStore, version_id: UUID, size_bytes: int) -> tuple[bytes, bytes]:
    """Read a whole blob; return its digest and the checksums of its chunks. Raises what the store raises."""
    digest, checksums = hashlib.sha256(), ChunkChecksums()
    with store.open(version_id, placed=True) as reader:
        for chunk in reader.chunks(0, size_bytes):
            digest.update(chunk)
            checksums.update(chunk)
    return digest.digest(), checksums.finish()


def _keep_checksums(database: Database, version_id: UUID, checksums: bytes) -> None:
    """Store the checksums of content that has none because it was received by an earlier release."""
    kept = update(blobs).where(blobs.c.version_id == version_id).values(chunk_checksums=checksums)
    with database.autocommit() as session:
        session.execute(kept)


def mark(database: Database, version_id: UUID, *, is_sound: bool) -> bool:
    """Mark a blob damaged or sound; return False if it was removed while it was read."""
    marked = (
        update(blobs)
        .where(blobs.c.version_id == version_id, blobs.c.state == "live")
        .values(damaged_at=None if is_sound else func.coalesce(blobs.c.damaged_at, func.now()))
    )
    with database.autocommit() as session:
        is_there = session.execute(marked).rowcount == 1
    if is_there:
        # Log repaired content as a warning too, because an operator must know of both changes.
        log.warning("blob.mended" if is_sound else "blob.damaged", version_id=version_id)
    return is_there


def _put_back(database: Database, version_ids: list[UUID], interval: timedelta) -> None:
    """Make claimed blobs due again, because the store did not respond."""
    due = update(blobs).where(blobs.c.version_id.in_(version_ids))
    with database.autocommit() as session:
        session.execute(due.values(verified_at=func.now() - interval))
