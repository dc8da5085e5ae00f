"""Copy content from the second store to the first while the service runs.

Rows are read in the order of their ids, and those that the first store has are skipped, so a run may be interrupted and
repeated, and several may run at once. The second store keeps everything: its operator removes it as a whole when
nothing needs it any more.

One blob: claim its row with a lease → begin in the first store → read from the second → seal → place → record. Content
that is deleted meanwhile has no row when the copy is recorded, and the copy is removed. An unfinished copy is found by
the row: its `upload_id` is UNKNOWN_UPLOAD until the copy is recorded.

The end of its lease is a claim's fencing token: a later claim has a later one. A run that stalled for longer cannot
record or release what another has claimed.
"""

import hashlib
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Interval, bindparam, text

from shared import failpoints
from shared.db.database import Database
from shared.errors import DomainError
from shared.files.blobs.base import UNKNOWN_UPLOAD, Blob, BlobDamaged, BlobMissing, BlobStore, Stored
from shared.files.blobs.paired import PairedBlobStore
from shared.files.lifecycle.placement import blob_of
from shared.files.maintenance.store_audit import find_details, walk_rows
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

BATCH_SIZE = 5000
THREADS = 4
LEASE = timedelta(minutes=1)
# A quarter of the lease: a slow chunk delays a renewal without losing the lease.
RENEWED_SECONDS = 15.0
PAUSE_SECONDS = 2.0

Progress = Callable[[str, int], None]
"""Called with what was done and how much of it."""

_CLAIM = text(
    """
WITH due AS (
    SELECT version_id, upload_id FROM blobs
    WHERE version_id = :id AND state = 'live' AND (lease_until IS NULL OR lease_until < now())
    FOR UPDATE SKIP LOCKED
)
UPDATE blobs SET lease_until = now() + :lease, upload_id = :unknown
FROM due LEFT JOIN file_versions AS version ON version.id = due.version_id WHERE blobs.version_id = due.version_id
RETURNING blobs.version_id, blobs.byte_size, blobs.lease_until, due.upload_id AS left_behind, version.content_sha256
"""
).bindparams(bindparam("lease", type_=Interval))
_HELD = "version_id = :id AND state = 'live' AND lease_until = :lease_until"
_RENEW = text(
    f"UPDATE blobs SET lease_until = now() + :lease WHERE {_HELD} RETURNING lease_until"  # noqa: S608 (from the code)
).bindparams(bindparam("lease", type_=Interval))
_RECORD = text(
    f"""
UPDATE blobs SET upload_id = NULL, lease_until = NULL, checksum = :checksum,
    chunk_checksums = coalesce(chunk_checksums, :chunk_checksums)
WHERE {_HELD}
"""  # noqa: S608 (from the code)
)
_GIVE_BACK = text(
    f"UPDATE blobs SET upload_id = NULL, lease_until = NULL WHERE {_HELD}"  # noqa: S608 (from the code)
)
_IS_LIVE = text("SELECT EXISTS (SELECT FROM blobs WHERE version_id = :id AND state = 'live')")


@dataclass(slots=True, kw_only=True)
class _Claim:
    """The right to copy a version until the lease ends, or later while no other run has claimed it."""

    version_id: UUID
    size_bytes: int
    content_sha256: bytes | None
    has_remains: bool
    """Whether a crashed run may have left an unfinished copy."""
    lease_until: datetime

    @property
    def held(self) -> dict[str, Any]:
        return {"id": self.version_id, "lease_until": self.lease_until}


@dataclass(slots=True, kw_only=True)
class MigrationResult:
    """The work of a run; complete if the first store has all content."""

    versions: int = 0
    size_bytes: int = 0
    unreadable: set[UUID] = field(default_factory=set)
    is_complete: bool = False


def move(
    database: Database, pair: PairedBlobStore, *, threads: int = THREADS, progress: Progress = lambda *_: None
) -> MigrationResult:
    """Copy until the first store has all content that can be read.

    Raises BlobStoreUnavailable, StorageFull, StorageReadOnly, ServiceUnavailable: run it again.
    """
    pair.require()
    moved = MigrationResult()
    with ThreadPoolExecutor(threads) as pool:
        while _run(database, pair, moved, pool, progress):
            # The rest is claimed by another run, perhaps a crashed one, or waits for placement.
            time.sleep(PAUSE_SECONDS)
    moved.is_complete = not moved.unreadable
    log.info("blob_store.moved", versions=moved.versions, is_complete=moved.is_complete)
    return moved


def _run(
    database: Database,
    pair: PairedBlobStore,
    moved: MigrationResult,
    pool: ThreadPoolExecutor,
    progress: Progress,
) -> int:
    """Process all rows once; return how many versions the first store does not have and could have."""
    left = 0
    for rows in walk_rows(database, size=BATCH_SIZE):
        absent = _absent(pair, rows)
        progress("present", len(rows) - len(absent))
        live = [row.version_id for row in absent if row.state == "live"]
        for version_id, outcome in zip(live, pool.map(partial(_copy_one, database, pair), live), strict=True):
            _count(moved, version_id, outcome)
            progress("bytes copied", outcome if isinstance(outcome, int) else 0)
        rest = [row.version_id for row in absent if row.version_id not in moved.unreadable]
        # Check again: most have been copied, and others deleted meanwhile.
        now = [row for row in find_details(database, rest) if row.state in ("live", "staged")] if rest else []
        left += len(_absent(pair, now)) if now else 0
    return left


def _absent(pair: PairedBlobStore, rows: Sequence[Any]) -> list[Any]:
    """Return the rows without content in the first store, placed or waiting for placement."""
    held = pair.first.measure([blob_of(row) for row in rows])
    return [row for row in rows if not _has(held.get(row.version_id), row)]


def _has(stored: Stored | None, row: Any) -> bool:
    if stored is None or stored.size_bytes != row.byte_size:
        return False
    return stored.is_placed or row.state == "staged"


class _Outcome(Enum):
    NOTHING_TO_DO = "nothing to do now"
    UNREADABLE = "unreadable"


def _count(moved: MigrationResult, version_id: UUID, outcome: int | _Outcome) -> None:
    if outcome is _Outcome.UNREADABLE:
        moved.unreadable.add(version_id)
    elif isinstance(outcome, int):
        moved.unreadable.discard(version_id)
        moved.versions += 1
        moved.size_bytes += outcome


def _copy_one(database: Database, pair: PairedBlobStore, version_id: UUID) -> int | _Outcome:
    """Copy one version; return its size in bytes."""
    claim = _find_claim(database, version_id)
    if claim is None:
        return _Outcome.NOTHING_TO_DO
    failpoints.hit("move.claimed")
    try:
        blob = _copy(database, pair, claim)
    except DomainError as error:
        return _give_back(database, claim, error)
    failpoints.hit("move.placed")
    if _record(database, claim, blob):
        return blob.size_bytes
    # Stores know no fencing token, so placed bytes are removed only if the content is not live.
    if not _is_live(database, version_id):
        for failure in pair.first.remove([blob]).values():
            raise failure
    return _Outcome.NOTHING_TO_DO


def _find_claim(database: Database, version_id: UUID) -> _Claim | None:
    values = {"id": version_id, "lease": LEASE, "unknown": UNKNOWN_UPLOAD}
    with database.autocommit() as session:
        row = session.execute(_CLAIM, values).one_or_none()
    if row is None:
        return None
    return _Claim(
        version_id=row.version_id,
        size_bytes=row.byte_size,
        content_sha256=row.content_sha256,
        has_remains=row.left_behind is not None,
        lease_until=row.lease_until,
    )


def _give_back(database: Database, claim: _Claim, error: DomainError) -> _Outcome:
    """End a claim after a failed copy; raise the error unless it is about this version's content."""
    with database.autocommit() as session:
        is_held = session.execute(_GIVE_BACK, claim.held).rowcount == 1
    if not is_held:
        return (
            _Outcome.NOTHING_TO_DO
        )  # deleted meanwhile, and what was copied of it removed; or another's by now
    # An error of the store concerns every version: end the run.
    if not isinstance(error, BlobMissing | BlobDamaged):
        raise error
    log.warning("blob.not_moved", version_id=claim.version_id, error=error.code)
    return _Outcome.UNREADABLE


def _copy(database: Database, pair: PairedBlobStore, claim: _Claim) -> Blob:
    target: BlobStore = pair.first
    if claim.has_remains:
        # The unfinished copy of a crashed run would occupy the name, or its parts.
        target.abort(claim.version_id)
    # Begin before the source is opened: a removal in between either leaves nothing to read, or aborts this upload.
    upload_id = target.begin(claim.version_id)
    receiver = target.receive(claim.version_id, size_bytes=claim.size_bytes, upload_id=upload_id)
    try:
        digest = hashlib.sha256()
        with closing(_read(database, pair.second, claim)) as chunks:
            for chunk in chunks:
                digest.update(chunk)
                receiver.write(chunk)
        if claim.content_sha256 is not None and digest.digest() != bytes(claim.content_sha256):
            raise BlobDamaged
        failpoints.hit("move.read")
        blob = receiver.seal()
        _renew(database, claim)
    except BaseException:
        receiver.discard()
        raise
    receiver.release()
    for failure in target.place([blob]).values():
        raise failure
    return blob


def _read(database: Database, source: BlobStore, claim: _Claim) -> Generator[bytes]:
    """Yield the source's content, and renew the lease; content that was deleted meanwhile raises BlobMissing."""
    renewed_at = time.monotonic()
    with source.open(claim.version_id, placed=True) as reader:
        for chunk in reader.chunks(0, claim.size_bytes):
            yield chunk
            if time.monotonic() - renewed_at > RENEWED_SECONDS:
                renewed_at = time.monotonic()
                _renew(database, claim)


def _renew(database: Database, claim: _Claim) -> None:
    """Renew the lease. Raises BlobMissing for content that was deleted, or that another run has claimed."""
    with database.autocommit() as session:
        renewed = session.execute(_RENEW, {**claim.held, "lease": LEASE}).scalar_one_or_none()
    if renewed is None:
        raise BlobMissing
    claim.lease_until = renewed


def _record(database: Database, claim: _Claim, blob: Blob) -> bool:
    values = {**claim.held, "checksum": blob.checksum, "chunk_checksums": blob.chunk_checksums}
    with database.autocommit() as session:
        return session.execute(_RECORD, values).rowcount == 1


def _is_live(database: Database, version_id: UUID) -> bool:
    with database.autocommit() as session:
        return bool(session.execute(_IS_LIVE, {"id": version_id}).scalar_one())
