"""Delete staged bytes that crashed uploads left without a row, and records that are no longer needed."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import Integer, bindparam, delete, func, literal, select, text, tuple_

from shared import failpoints
from shared.db.database import Database
from shared.files.blobs.base import BlobStore
from shared.files.resumable.expiry import purge_uploads
from shared.files.stores import StoreContext
from shared.files.tables import operations, read_grants
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import RETENTION
from shared.observability.telemetry import SWEPT, get_logger
from shared.runtime.batches import must_stop, run_in_batches

log = get_logger(__name__)

BATCH_SIZE = 1000
_LIMIT = bindparam("limit", type_=Integer)
EXPIRED_GRANT_KEPT = timedelta(days=1)
"""The time for which the link of an expired grant reports that the grant has expired, before the grant is deleted."""

TOMBSTONE_KEPT = timedelta(minutes=1)
"""The time for which the row of a crashed upload stays before the collector may delete the row."""


@sweep("files.sweep_staging", queue=RETENTION, every_seconds=30)
def _sweep_staging(context: StoreContext) -> int:
    return sweep_staging(context.database, context.store)


def sweep_staging(database: Database, store: BlobStore) -> int:
    """Discard the staged bytes of uploads that crashed before their commit. Return the number of uploads.

    The store locks each candidate during the check, so a running upload is never discarded.
    """
    discarded = 0
    for candidates in store.list_unlocked():
        dead = claim_orphans(database, [candidate.version_id for candidate in candidates])
        failpoints.hit("sweep.doomed")
        for candidate in candidates:
            if candidate.version_id in dead:
                candidate.discard()
        failpoints.hit("sweep.discarded")
        discarded += len(dead)
        if must_stop():
            break
    SWEPT.labels("staging").inc(discarded)
    return discarded


# Do not use a SELECT: the upload may have crashed while its COMMIT was running. An INSERT of the same key
# waits for that commit. If the upload's row was committed, the INSERT finds a conflict and the bytes are
# kept. Otherwise the INSERT adds a row and the bytes are deleted. The sweep's row stays longer than any
# statement may run (`STATEMENT_TIMEOUT_MS`), so a late statement of the crashed upload fails on the unique
# key.

_CLAIM_ORPHANS = text(
    """
INSERT INTO blobs (version_id, state, byte_size, lease_until)
SELECT id, 'doomed', 0, now() + :kept FROM unnest(CAST(:ids AS uuid[])) AS id
WHERE NOT EXISTS (SELECT FROM blobs WHERE version_id = id)
ON CONFLICT DO NOTHING RETURNING version_id
"""
)


def claim_orphans(database: Database, ids: Sequence[UUID]) -> set[UUID]:
    """Insert a row that is pending deletion for each id without a row. Return the inserted ids."""
    with database.transaction() as session:
        return set(
            session.execute(
                _CLAIM_ORPHANS, {"ids": [str(at) for at in ids], "kept": TOMBSTONE_KEPT}
            ).scalars()
        )


@sweep("files.purge_records", queue=RETENTION, every_seconds=3600)
def _purge_records(context: Context) -> int:
    retention = timedelta(days=context.settings.operation_retention_days)
    database = context.database
    return purge_operations(database, retention) + purge_grants(database) + purge_uploads(database)


def purge_operations(database: Database, retention: timedelta) -> int:
    """Delete operations that are older than `retention`. Return the number of deleted operations."""
    key = (operations.c.executor_id, operations.c.kind, operations.c.operation_id)
    old = select(*key).where(operations.c.created_at < func.now() - literal(retention)).limit(_LIMIT)
    forget = delete(operations).where(tuple_(*key).in_(old))
    return run_in_batches(database, forget, size=BATCH_SIZE, swept="operations")


def purge_grants(database: Database) -> int:
    """Delete grants that expired more than a day ago. Return the number of deleted grants."""
    long_ago = func.now() - literal(EXPIRED_GRANT_KEPT)
    old = select(read_grants.c.id).where(read_grants.c.access_expires_at < long_ago).limit(_LIMIT)
    forget = delete(read_grants).where(read_grants.c.id.in_(old))
    return run_in_batches(database, forget, size=BATCH_SIZE, swept="grants")
