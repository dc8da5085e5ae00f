"""Garbage collection: remove the bytes of unreachable content, and then the blob rows.

Only rows decide what is garbage. A row pending deletion is claimed with a lease, its bytes are removed durably, and the
row is deleted last: after a crash in between, the removal is repeated and succeeds on absent bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import bindparam, delete, func, select, text, update

from shared import failpoints
from shared.db.database import Database
from shared.files.blobs.base import Blob, BlobStore
from shared.files.lifecycle.content_disposal import claim_ended_content
from shared.files.lifecycle.placement import blob_of
from shared.files.stores import StoreContext
from shared.files.tables import blobs
from shared.messaging.jobs import Job, handles
from shared.messaging.queues import RETENTION
from shared.observability.telemetry import SWEPT, get_logger
from shared.runtime.batches import drain, run_in_batches

log = get_logger(__name__)

BATCH_SIZE = 500
# The lease is long because the removal of a batch on S3 may take minutes.
LEASE = timedelta(minutes=5)
_CLAIM = text(
    """
UPDATE blobs SET lease_until = now() + :lease WHERE version_id IN (
    SELECT version_id FROM blobs WHERE state = 'doomed' AND (lease_until IS NULL OR lease_until < now())
    ORDER BY created_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
RETURNING version_id, byte_size, upload_id, checksum
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectGarbage(Job):
    """Content has become unreachable and its bytes are pending deletion."""

    kind = "files.collect_doomed"
    queue = RETENTION


@handles(CollectGarbage, every_seconds=10)
def _collect_doomed(context: StoreContext) -> int:
    return collect_garbage(context.database, context.store)


def collect_garbage(database: Database, store: BlobStore) -> int:
    """Remove all content that is pending deletion or has ended, in batches. Return the number of removed blobs."""
    # Do this before the store is checked, because it needs only the database.
    _give_up_dead_receptions(database)
    store.require()
    removed = 0

    def batch() -> int:
        nonlocal removed
        claimed = _claim(database)
        removed += remove_claimed(database, store, claimed) if claimed else 0
        return len(claimed)

    drain(batch, size=BATCH_SIZE)
    return removed


def remove_claimed(database: Database, store: BlobStore, claimed: Sequence[Blob]) -> int:
    """Remove the bytes of blobs that the caller has leased, and then their rows. Return the number of blobs."""
    failures = store.remove(claimed)
    failpoints.hit("collection.removed")
    removed = [blob.version_id for blob in claimed if blob.version_id not in failures]
    with database.autocommit() as session:
        session.execute(delete(blobs).where(blobs.c.version_id.in_(removed), blobs.c.state == "doomed"))
    failpoints.hit("collection.recorded")
    for version_id, error in failures.items():
        log.warning("blob.not_removed", version_id=version_id, error=error.code)
    SWEPT.labels("collected").inc(len(removed))
    return len(removed)


def _claim(database: Database) -> Sequence[Blob]:
    """Claim blobs pending deletion, the oldest first, and fill the batch with ended content."""
    with database.autocommit() as session:
        rows = session.execute(_CLAIM, {"limit": BATCH_SIZE, "lease": LEASE})
        claimed = [blob_of(row) for row in rows]
    claimed += claim_ended_content(database, limit=BATCH_SIZE - len(claimed), lease=LEASE)
    failpoints.hit("collection.claimed")
    return claimed


def _give_up_dead_receptions(database: Database) -> None:
    """Mark uploads for deletion that have exceeded their lease without a commit."""
    due = select(blobs.c.version_id).where(blobs.c.state == "receiving", blobs.c.lease_until < func.now())
    dead = due.limit(bindparam("limit")).with_for_update(skip_locked=True)
    give_up = update(blobs).where(blobs.c.version_id.in_(dead)).values(state="doomed", lease_until=None)
    run_in_batches(database, give_up, size=BATCH_SIZE)
