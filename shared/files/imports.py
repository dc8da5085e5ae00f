"""Write imported media as a file: the files' half of an import.

The other half, the import's own row, is written by the caller in the same transaction, so that an import is Stored if
and only if its file is there. Bytes come in by `staging.stage_and_commit` as those of every write do, and a worker
places them. What is written here cannot be renewed or replaced: messaging media is what was received, for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from shared.database import Session
from shared.files.blobs.base import Blob, BlobStore
from shared.files.operations import ReceivedPart
from shared.files.resources import Version
from shared.files.staging import commit_statement, committed_version

_INSERT = """
WITH file AS (
    INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state, current_version_id,
        revision, retention_expires_at)
    VALUES (:file_id, :organization_id, :organization_id, 'MessagingMedia', 'PrincipalIdentity', :owner_id,
        'Available', :version_id, 1, now() + make_interval(days => :retention_days))
    RETURNING id, retention_expires_at
),
version AS (
    INSERT INTO file_versions (id, file_id, revision, file_name, media_type, byte_size, content_sha256)
    SELECT :version_id, id, 1, :file_name, :media_type, :byte_size, :content_sha256 FROM file RETURNING created_at
),
blob AS ({record_staged})
SELECT version.created_at, file.retention_expires_at, blob.version_id IS NOT NULL AS is_staged
FROM version CROSS JOIN file LEFT JOIN blob ON true
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMedia:
    """A file to be: whose it is, who pays, and how long it stays."""

    file_id: UUID
    organization_id: UUID
    owner_id: UUID
    retention_days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMedia:
    """A file of imported media, as it was stored."""

    version: Version
    retention_expires_at: datetime


def insert_media(
    session: Session, store: BlobStore, media: NewMedia, part: ReceivedPart, blob: Blob
) -> StoredMedia:
    """Write the file, its version and its staged blob. Raises Unavailable when a sweep has given the bytes up."""
    statement = commit_statement(_INSERT, is_recorded=store.records_before_receiving)
    row = session.execute(
        statement,
        {
            "file_id": media.file_id,
            "organization_id": media.organization_id,
            "owner_id": media.owner_id,
            "retention_days": media.retention_days,
            "version_id": blob.version_id,
            "file_name": part.file_name,
            "media_type": part.media_type,
            "byte_size": part.byte_size,
            "content_sha256": part.sha256,
            "upload_id": blob.upload_id,
            "checksum": blob.checksum,
            "chunk_checksums": blob.chunk_checksums,
        },
    ).one()
    version = committed_version(row, part, blob, file_id=media.file_id, revision=1)
    if version is None:
        raise RuntimeError("one row is one version")
    return StoredMedia(version=version, retention_expires_at=row.retention_expires_at)
