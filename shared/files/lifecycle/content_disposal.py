"""Mark the content of ended files and uploads for deletion, in batches if there is much of it.

A file or a resumable upload ends with one small transaction. After its commit, readers are refused and charges end. The
transaction marks up to AT_ONCE versions or pieces for deletion. If there are more, it inserts a row in `ended_content`,
and the collector marks them in batches. Organizations take turns, and so do the files of each organization
(`shared/fairness/fair_queueing.py`). One transaction writes a batch and its progress, so a crash loses nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import insert, select, text, update

from shared.db.database import Database, Session
from shared.fairness.fair_queueing import RoundRobin, next_round_robin
from shared.files.blobs.base import Blob
from shared.files.lifecycle.placement import blob_of
from shared.files.tables import blobs, ended_content, versions
from shared.runtime.batches import must_stop

AT_ONCE = 2000
"""The most versions or pieces that are marked for deletion in the transaction that ends their file or upload."""


class ContentKind(StrEnum):
    """The kind of a resource that has ended and has content."""

    FILE = "File"
    UPLOAD = "Upload"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedFile:
    """A file that ended in this transaction, with its number of versions."""

    id: UUID
    organization_id: UUID
    versions: int


def mark_for_deletion(session: Session, file: EndedFile) -> None:
    """Mark all versions of a file for deletion. If there are more than AT_ONCE, leave them to the collector."""
    if split_by_size([file])[0]:
        of_file = select(versions.c.id).where(versions.c.file_id == file.id)
        marked = update(blobs).where(blobs.c.version_id.in_(of_file))
        session.execute(marked.values(state="doomed", lease_until=None))
    else:
        enqueue_for_collection(session, ContentKind.FILE, {file.id: file.organization_id})


def split_by_size(ended: Sequence[EndedFile]) -> tuple[list[EndedFile], list[EndedFile]]:
    """Divide files into those with up to AT_ONCE versions together, the smallest first, and the others."""
    few: list[EndedFile] = []
    many: list[EndedFile] = []
    held = 0
    # Begin with the smallest, so that one file with very many versions does not exclude all others from this
    # transaction.
    for file in sorted(ended, key=lambda each: each.versions):
        held += file.versions
        (few if held <= AT_ONCE else many).append(file)
    return few, many


def enqueue_for_collection(session: Session, kind: ContentKind, ended: Mapping[UUID, UUID]) -> None:
    """Insert rows for the collector: files or uploads with content to be marked, each with its organization."""
    if ended:
        rows = [
            {"id": each, "kind": kind, "organization_id": organization_id}
            for each, organization_id in ended.items()
        ]
        session.execute(insert(ended_content), rows)


_ROTATION = RoundRobin()
_HEAD = next_round_robin(
    table="ended_content", tenant="organization_id", member="id", ready="true", order="created_at"
)
_CLAIM = text(f"SELECT head.*, kind FROM ({_HEAD}) AS head JOIN ended_content USING (id)")  # noqa: S608 (from the code)
# Use a separate statement after the lock, so that it sees the progress of the previous batch.
MARK_VERSIONS = """
WITH next AS (
    SELECT version.id, version.revision FROM ended_content AS file CROSS JOIN LATERAL (
        SELECT id, revision FROM file_versions WHERE file_id = file.id AND revision > file.doomed_to
        ORDER BY revision LIMIT :limit
    ) AS version
    WHERE file.id = :id
),
done AS (DELETE FROM ended_content WHERE id = :id AND (SELECT count(*) FROM next) < :limit),
progress AS (
    UPDATE ended_content SET doomed_to = (SELECT max(revision) FROM next)
    WHERE id = :id AND (SELECT count(*) FROM next) = :limit
)
UPDATE blobs SET state = 'doomed', lease_until = now() + :lease
FROM next WHERE blobs.version_id = next.id AND blobs.state <> 'doomed'
RETURNING blobs.version_id, blobs.byte_size, blobs.upload_id, blobs.checksum
"""
MARK_PIECES = """
WITH gone AS (
    DELETE FROM upload_pieces WHERE blob_id = ANY (ARRAY(
        SELECT blob_id FROM upload_pieces WHERE upload_id = :id ORDER BY offset_bytes LIMIT :limit
    )) RETURNING blob_id
),
done AS (DELETE FROM ended_content WHERE id = :id AND (SELECT count(*) FROM gone) < :limit)
UPDATE blobs SET state = 'doomed', lease_until = now() + :lease
FROM gone WHERE blobs.version_id = gone.blob_id AND blobs.state <> 'doomed'
RETURNING blobs.version_id, blobs.byte_size, blobs.upload_id, blobs.checksum
"""
_MARK = {ContentKind.FILE: text(MARK_VERSIONS), ContentKind.UPLOAD: text(MARK_PIECES)}


def claim_ended_content(database: Database, *, limit: int, lease: timedelta) -> list[Blob]:
    """Mark up to `limit` more blobs of ended content for deletion, claim them, and return them."""
    claimed: list[Blob] = []
    while len(claimed) < limit:
        found = _claim_next(database, {"limit": limit - len(claimed), "lease": lease})
        if found is None:
            break
        claimed += found
        if must_stop():
            break
    return claimed


def _claim_next(database: Database, values: dict[str, Any]) -> list[Blob] | None:
    """Mark the next blobs of the next file or upload; None if there is none."""
    with database.transaction() as session:
        row = _ROTATION.claim(session, _CLAIM)
        if row is None:
            return None
        return [blob_of(at) for at in session.execute(_MARK[ContentKind(row.kind)], {**values, "id": row.id})]
