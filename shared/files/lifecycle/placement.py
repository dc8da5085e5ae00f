"""Move committed content to its final place. Workers do this after every write.

Staged rows are claimed in batches with a lease; their blobs are placed, and the rows are marked live. Each step may
be repeated: the leases of a crashed worker expire, and placing a placed blob succeeds. If content is deleted before
it is placed, its row is no longer `staged` and the collector removes the bytes. The collector removes them from
staging before the final place, so that a late placement cannot restore them.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Uuid, bindparam, func, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY

from shared import failpoints
from shared.db.database import Database, Session
from shared.fairness.fair_queueing import first_of_each, select_round_robin
from shared.files.blobs.base import Blob, BlobStore
from shared.files.stores import StoreContext
from shared.files.tables import blobs
from shared.messaging.jobs import Job, handles
from shared.messaging.queues import UPLOADS
from shared.observability.telemetry import get_logger
from shared.runtime.batches import drain

log = get_logger(__name__)

# Longer than a batch takes; short enough to retry a crashed worker's rows within a minute.
LEASE = timedelta(seconds=60)
BATCH_SIZE = 100
# Poll often at first, because a local placement takes milliseconds. Then poll four times a second, for S3.
_POLL_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.25)

_FREE = "state = 'staged' AND (lease_until IS NULL OR lease_until < now())"
_OLDEST = text(
    f"SELECT version_id FROM blobs WHERE {_FREE} ORDER BY created_at LIMIT :limit FOR UPDATE SKIP LOCKED"  # noqa: S608
)
_HEADS = first_of_each(
    table="blobs", tenant="organization_id", ready=_FREE, order="created_at", key="version_id"
)
FAIR = f"SELECT id FROM ({_HEADS}) head ORDER BY place, random() LIMIT :limit"  # noqa: S608
_FAIR = text(FAIR)
_CLAIM = text(
    f"""
WITH free AS (
    SELECT version_id AS id FROM blobs WHERE version_id = ANY (CAST(:ids AS uuid[])) AND {_FREE}
    FOR UPDATE SKIP LOCKED
)
UPDATE blobs SET lease_until = now() + :lease
FROM free WHERE version_id = free.id RETURNING version_id, byte_size, upload_id, checksum
"""  # noqa: S608 (a condition from the code)
)
_LIVE = (
    update(blobs)
    .where(
        blobs.c.version_id == func.any(bindparam("placed", type_=ARRAY(Uuid))),
        blobs.c.state == "staged",
    )
    .values(state="live", upload_id=None, lease_until=None)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceStaged(Job):
    """Content was committed and is to be moved to its final place."""

    kind = "files.place_staged"
    queue = UPLOADS
    # A batch costs little more than one blob. If readers find staged content, a web process sends at most one message a
    # second.
    spacing_seconds = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceAwaited(PlaceStaged):
    """The same, while a client waits for the placement."""

    spacing_seconds = 0.0


@handles(PlaceStaged, every_seconds=5, in_parallel=True)
def _place_staged(context: StoreContext) -> int:
    return place_staged(context.database, context.store)


def place_staged(database: Database, store: BlobStore) -> int:
    """Place all staged content that no other worker has claimed, in batches. Return the number of placed blobs."""
    store.require()
    placed = 0

    def batch() -> int:
        nonlocal placed
        found, claimed = _claim(database)
        placed += _place(database, store, claimed) if claimed else 0
        return found

    # Stop after the last batch: a separate message is sent for content that is staged later.
    drain(batch, size=BATCH_SIZE)
    return placed


def wait_while_staged(database: Database, version_id: UUID, wait_seconds: float) -> bool:
    """Wait at most `wait_seconds` while a version's content is staged. Return whether the content is still staged.

    The wait ends when the content was placed or removed.
    """
    deadline = time.monotonic() + wait_seconds
    attempt = 0
    while True:
        with database.autocommit() as session:
            state = session.execute(
                select(blobs.c.state).where(blobs.c.version_id == version_id)
            ).scalar_one_or_none()
        if state != "staged":
            return False
        pause = _POLL_SECONDS[min(attempt, len(_POLL_SECONDS) - 1)]
        if time.monotonic() + pause > deadline:
            return True
        time.sleep(pause)
        attempt += 1


def blob_of(row: Any) -> Blob:
    """Return the blob of a row."""
    return Blob(
        version_id=row.version_id, size_bytes=row.byte_size, upload_id=row.upload_id, checksum=row.checksum
    )


def _claim(database: Database) -> tuple[int, Sequence[Blob]]:
    """Claim a batch. Return the number of rows found, and the blobs that no other worker had claimed."""
    with database.transaction() as session:
        found = select_round_robin(session, oldest=_OLDEST, fair=_FAIR, limit=BATCH_SIZE)
        values = {"ids": [str(at) for at in found], "lease": LEASE}
        claimed = [blob_of(row) for row in session.execute(_CLAIM, values)] if found else []
    failpoints.hit("placement.claimed")
    return len(found), claimed


def _place(database: Database, store: BlobStore, claimed: Sequence[Blob]) -> int:
    failures = store.place(claimed)
    failpoints.hit("placement.placed")
    placed = [blob.version_id for blob in claimed if blob.version_id not in failures]
    with database.autocommit() as session:
        # Mark only rows that are still `staged`: content that was deleted since its claim belongs to the collector.
        session.execute(_LIVE, {"placed": placed})
        _report_failures(session, failures)
    failpoints.hit("placement.recorded")
    return len(placed)


def _report_failures(session: Session, failures: Any) -> None:
    """Log the blobs that could not be placed and are still staged; their lease delays the next attempt."""
    if not failures:
        return
    wanted = select(blobs.c.version_id).where(
        blobs.c.version_id.in_(list(failures)), blobs.c.state == "staged"
    )
    for version_id in session.execute(wanted).scalars():
        log.warning("blob.not_placed", version_id=version_id, error=failures[version_id].code)
