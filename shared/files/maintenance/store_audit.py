"""Compare the store with the rows, in both directions, and read a sample of the content; change nothing.

Rows are read batch by batch in the order of their ids and measured in the store; then the store is listed and the rows
are looked up. Each suspect is checked again, rows first: a file may have been written or deleted meanwhile. Memory is
one batch. Discrepancies are repaired by `store_repair`.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text

from shared.db.database import Database
from shared.files.blobs.base import Blob, BlobDamaged, BlobMissing, BlobStore, Stored
from shared.files.lifecycle.placement import blob_of
from shared.files.maintenance.scrubbing import read_digest

BATCH_SIZE = 20_000
# A sample of 200 finds decay in 2 % of the content with a probability of 98 %.
SAMPLE = 200
SAMPLE_BYTES = 1 << 30
MAX_MARKED = 1000
"""The most damaged blobs that are read again in one audit."""

Progress = Callable[[str, int], None]
"""Called with the step and the number of items done."""


class DiscrepancyKind(StrEnum):
    """The kind of a discrepancy between a version's row and its bytes."""

    MISSING = "missing"
    RESIZED = "resized"
    DECAYED = "decayed"
    SOUND = "sound"
    UNPLACED = "unplaced"
    ENDED = "ended"
    ROWLESS = "rowless"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """A version with a row and bytes that disagree; `file_id` is None if the database has no such version."""

    kind: DiscrepancyKind
    version_id: UUID
    size_bytes: int
    file_id: UUID | None
    organization_id: UUID | None
    content_sha256: bytes | None
    is_marked: bool


_ROWS = text(
    """
SELECT version_id, state, byte_size, upload_id, checksum FROM blobs
WHERE version_id > :after AND state IN ('live', 'staged') ORDER BY version_id LIMIT :batch
"""
)
_MARKED = text("SELECT version_id FROM blobs WHERE damaged_at IS NOT NULL AND state = 'live' LIMIT :limit")
_KNOWN = text("SELECT version_id FROM blobs WHERE version_id = ANY (CAST(:ids AS uuid[]))")
_DETAILS = text(
    """
SELECT asked.id AS version_id, blob.state, blob.upload_id, blob.checksum, blob.damaged_at IS NOT NULL AS is_marked,
    coalesce(blob.byte_size, version.byte_size) AS byte_size, version.content_sha256, version.file_id,
    file.organization_id, file.state AS file_state
FROM unnest(CAST(:ids AS uuid[])) AS asked (id) LEFT JOIN blobs AS blob ON blob.version_id = asked.id
LEFT JOIN file_versions AS version ON version.id = asked.id LEFT JOIN files AS file ON file.id = version.file_id
"""
)


def audit(
    database: Database,
    store: BlobStore,
    *,
    sample: int = SAMPLE,
    progress: Progress = lambda *_: None,
) -> Iterator[Discrepancy]:
    """Yield each disagreement of row and bytes, and those of a sample that do not match their digest.

    Raises BlobStoreUnavailable, ServiceUnavailable.
    """
    store.require()
    drawn = _Sample(sample)
    for found in walk_rows(database, size=BATCH_SIZE):
        rows = [blob_of(row) for row in found]
        drawn.offer(rows)
        progress("rows", len(rows))
        yield from _check_rows(database, store, rows)
    for listed in store.list_placed():
        progress("stored", len(listed))
        yield from _check_stored(database, store, listed)
    yield from _read_again(database, store, drawn.version_ids, progress)


def walk_rows(database: Database, *, size: int) -> Iterator[Sequence[Row[Any]]]:
    """Yield the rows of all live and staged content, `size` at a time, by their ids."""
    after = UUID(int=0)
    while True:
        with database.autocommit() as session:
            rows = session.execute(_ROWS, {"after": after, "batch": size}).all()
        if not rows:
            return
        yield rows
        after = rows[-1].version_id


def find_details(database: Database, version_ids: Sequence[UUID]) -> list[Row[Any]]:
    """Return the present rows of versions."""
    with database.autocommit() as session:
        return list(session.execute(_DETAILS, {"ids": [str(at) for at in version_ids]}).all())


class _Sample:
    """A fixed number of rows of a stream, each with the same probability (reservoir sampling)."""

    def __init__(self, size: int) -> None:
        self.version_ids: list[UUID] = []
        self._size = size
        self._seen = 0

    def offer(self, rows: Sequence[Blob]) -> None:
        for row in rows:
            self._seen += 1
            if len(self.version_ids) < self._size:
                self.version_ids.append(row.version_id)
            elif (at := random.randrange(self._seen)) < self._size:  # noqa: S311 (no secret)
                self.version_ids[at] = row.version_id


def _check_rows(database: Database, store: BlobStore, rows: Sequence[Blob]) -> Iterator[Discrepancy]:
    stored = store.measure(rows)
    suspects = [row.version_id for row in rows if not _agrees(row, stored.get(row.version_id))]
    if not suspects:
        return
    # Check the rows again first: a blob that was deleted or placed since the listing is no discrepancy.
    details = [row for row in find_details(database, suspects) if row.state in ("live", "staged")]
    stored = store.measure([blob_of(row) for row in details])
    for row in details:
        found = stored.get(row.version_id)
        if found is None:
            yield _discrepancy(DiscrepancyKind.MISSING, row)
        elif found.size_bytes != row.byte_size:
            yield _discrepancy(DiscrepancyKind.RESIZED, row)
        elif row.state == "live" and not found.is_placed:
            yield _discrepancy(DiscrepancyKind.UNPLACED, row)


def _agrees(row: Blob, found: Stored | None) -> bool:
    # A staged blob is checked again with its row, which may be `staged` too.
    return found is not None and found.is_placed and found.size_bytes == row.size_bytes


def _check_stored(database: Database, store: BlobStore, listed: Sequence[Stored]) -> Iterator[Discrepancy]:
    ids = [found.version_id for found in listed]
    with database.autocommit() as session:
        known = set(session.execute(_KNOWN, {"ids": [str(at) for at in ids]}).scalars())
    suspects = [Blob(version_id=at, size_bytes=0) for at in ids if at not in known]
    if not suspects:
        return
    # The collector deletes a row after its bytes, so bytes that are still stored without a row are a discrepancy.
    stored = store.measure(suspects)
    for row in find_details(database, list(stored)):
        if row.state is not None:
            continue
        if row.file_id is None:
            yield _discrepancy(DiscrepancyKind.UNKNOWN, row, size_bytes=stored[row.version_id].size_bytes)
        else:
            yield _discrepancy(
                DiscrepancyKind.ROWLESS if row.file_state == "Available" else DiscrepancyKind.ENDED, row
            )


def _read_again(
    database: Database, store: BlobStore, drawn: Sequence[UUID], progress: Progress
) -> Iterator[Discrepancy]:
    with database.autocommit() as session:
        marked = list(session.execute(_MARKED, {"limit": MAX_MARKED}).scalars())
    rest = SAMPLE_BYTES
    for row in find_details(database, list(dict.fromkeys([*marked, *drawn]))):
        if row.state != "live" or row.content_sha256 is None or rest < 0:
            continue
        # Damaged content is always read again; only the sample is limited in bytes.
        rest -= 0 if row.is_marked else row.byte_size
        progress("read", 1)
        is_sound = is_as_recorded(store, row)
        if is_sound is False and not row.is_marked:
            yield _discrepancy(DiscrepancyKind.DECAYED, row)
        if is_sound and row.is_marked:
            yield _discrepancy(DiscrepancyKind.SOUND, row)


def is_as_recorded(store: BlobStore, row: Any) -> bool | None:
    """Return whether a version's bytes match its digest; None if bytes are missing.

    Raises BlobStoreUnavailable.
    """
    try:
        digest, _ = read_digest(store, row.version_id, row.byte_size)
    except (BlobMissing, BlobDamaged):
        return None
    return digest == bytes(row.content_sha256)


def _discrepancy(kind: DiscrepancyKind, row: Any, *, size_bytes: int | None = None) -> Discrepancy:
    return Discrepancy(
        kind=kind,
        version_id=row.version_id,
        size_bytes=row.byte_size if size_bytes is None else size_bytes,
        file_id=row.file_id,
        organization_id=row.organization_id,
        content_sha256=None if row.content_sha256 is None else bytes(row.content_sha256),
        is_marked=row.is_marked,
    )
