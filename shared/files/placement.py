"""Bring committed content to its final place: the worker's half of every write.

Staged rows are claimed in batches with a lease, placed, and marked live. Each step is safe to repeat: a worker that
dies leaves rows whose lease runs out, and placing again what is already placed is a success. Content deleted
meanwhile is no longer `staged` and stays with the collector, which looks in staging first and in the final place
second, so that no placement, however late, brings it back.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Interval, Uuid, bindparam, func, or_, select, update
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql.dml import ReturningUpdate

from shared import failpoints
from shared.database import Database, Session
from shared.files.blobs.base import Blob, BlobStore
from shared.files.stores import StoreContext
from shared.files.tables import blobs
from shared.jobs import Job, handles
from shared.queues import UPLOADS
from shared.sweeping import drain
from shared.telemetry import get_logger

log = get_logger(__name__)

LEASE = timedelta(seconds=60)
BATCH_SIZE = 100
_POLL_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.25)

# Built once: assembling a statement anew costs as much as running it.
_OF_A_BLOB = (blobs.c.version_id, blobs.c.byte_size, blobs.c.upload_id, blobs.c.checksum)
_FREE = select(blobs.c.version_id).where(
    blobs.c.state == bindparam("claimed_state"),
    or_(blobs.c.lease_until.is_(None), blobs.c.lease_until < func.now()),
)


def _claim_in(order: ColumnElement[Any]) -> ReturningUpdate[Any]:
    free = _FREE.order_by(order).limit(bindparam("batch_size")).with_for_update(skip_locked=True)
    lease = {"lease_until": func.now() + bindparam("lease", type_=Interval)}
    return update(blobs).where(blobs.c.version_id.in_(free)).values(lease).returning(*_OF_A_BLOB)


_CLAIM_OLDEST = _claim_in(blobs.c.created_at)
_CLAIM_NEWEST = _claim_in(blobs.c.created_at.desc())
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
    """Content has been committed and waits to be brought to its final place."""

    kind = "files.place_staged"
    queue = UPLOADS


@handles(PlaceStaged, every_seconds=5, in_parallel=True)
def _place_staged(context: StoreContext) -> int:
    return place_staged(context.database, context.store)


def place_staged(database: Database, store: BlobStore) -> int:
    """Place everything that is staged, batch by batch until none is left unclaimed; return how many were placed."""
    store.require()
    placed = 0
    # While much is staged, every other batch is the newest: an upload that somebody waits for is not placed after all
    # that another has uploaded, and what is older is reached all the same.
    orders = itertools.cycle((_CLAIM_OLDEST, _CLAIM_NEWEST))

    def batch() -> int:
        nonlocal placed
        claimed = _claim(database, next(orders))
        placed += _place(database, store, claimed) if claimed else 0
        return len(claimed)

    # Whatever is staged after a claim has a message of its own.
    drain(batch, size=BATCH_SIZE)
    return placed


def wait_while_staged(database: Database, version_id: UUID, wait_seconds: float) -> bool:
    """Wait, at most so long, while a version's content is staged; return whether it still is.

    Content that was placed, or removed meanwhile, has nothing left to wait for.
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
    """Read a blob's row."""
    return Blob(
        version_id=row.version_id, size_bytes=row.byte_size, upload_id=row.upload_id, checksum=row.checksum
    )


def claim_blobs(
    session: Session,
    state: str,
    *,
    batch_size: int,
    lease: timedelta = LEASE,
    statement: ReturningUpdate[Any] = _CLAIM_OLDEST,
) -> list[Blob]:
    """Take blobs of a state that nobody holds, the oldest unless told otherwise, for as long as the lease."""
    values = {"claimed_state": state, "batch_size": batch_size, "lease": lease}
    return [blob_of(row) for row in session.execute(statement, values)]


def _claim(database: Database, statement: ReturningUpdate[Any]) -> Sequence[Blob]:
    with database.autocommit() as session:
        claimed = claim_blobs(session, "staged", batch_size=BATCH_SIZE, statement=statement)
    failpoints.hit("placement.claimed")
    return claimed


def _place(database: Database, store: BlobStore, claimed: Sequence[Blob]) -> int:
    failures = store.place(claimed)
    failpoints.hit("placement.placed")
    placed = [blob.version_id for blob in claimed if blob.version_id not in failures]
    with database.autocommit() as session:
        session.execute(_LIVE, {"placed": placed})
        _report_failures(session, failures)
    failpoints.hit("placement.recorded")
    return len(placed)


def _report_failures(session: Session, failures: Any) -> None:
    """Log what could not be placed and is still wanted; the lease spaces the next attempts."""
    if not failures:
        return
    wanted = select(blobs.c.version_id).where(
        blobs.c.version_id.in_(list(failures)), blobs.c.state == "staged"
    )
    for version_id in session.execute(wanted).scalars():
        log.warning("blob.not_placed", version_id=version_id, error=failures[version_id].code)
