"""Store imported media as a file, in the transaction that writes the import's own row.

Messaging media is a record of what was received and is kept for a limited time, so it cannot be renewed or replaced.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from shared.db.database import Session
from shared.files.resources import Purpose, ReceivedContent
from shared.files.retention import check_deadline
from shared.files.staging import StagedContent

_INSERT = """
WITH file AS (
    INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state, current_version_id,
        revision, retention_expires_at, distribution_id)
    VALUES (:file_id, :organization_id, :organization_id, 'MessagingMedia', 'PrincipalIdentity', :owner_id,
        'Available', :version_id, 1, now() + make_interval(days => :retention_days), :distribution_id)
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
    """The owner, payer and retention of a file to be created for imported media."""

    file_id: UUID
    organization_id: UUID
    owner_id: UUID
    distribution_id: UUID
    retention_days: int


def write_media(session: Session, staged: StagedContent, media: NewMedia, content: ReceivedContent) -> None:
    """Insert the file, its version and its staged blob.

    Raises ValidationFailed if `check_deadline` refuses the retention, ServiceUnavailable if a sweep has deleted the
    staged bytes.
    """
    now = datetime.now(UTC)
    check_deadline(Purpose.MESSAGING_MEDIA, now + timedelta(days=media.retention_days), now=now)
    values = {
        "file_id": media.file_id,
        "organization_id": media.organization_id,
        "owner_id": media.owner_id,
        "distribution_id": media.distribution_id,
        "retention_days": media.retention_days,
    }
    staged.write_rows(session, _INSERT, values, content)
