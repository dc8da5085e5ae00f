"""Store media that a distribution pushes as bytes. The import has the state Stored when the response is sent.

The bytes are staged, committed and placed like those of every upload, and one transaction writes the import and the
file. If one attachment is pushed concurrently, the first push to commit creates the file. Other pushes with the same
content return the import of the first.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from shared import failpoints
from shared.config.settings import Settings
from shared.db.database import Database, Session
from shared.files.blobs.base import AtMost, BlobStore
from shared.files.errors import ByteSizeMismatch, DigestMismatch
from shared.files.resources import ReceivedContent
from shared.files.staging import Sink, StagedContent, stage
from shared.identity.authentication.distribution_lookup import LiveReceiver
from shared.ids import new_id
from shared.media.attachments import Attachment
from shared.media.importing.authority import Proof, authorize_import
from shared.media.importing.descriptions import normalize
from shared.media.importing.import_notifications import notify_import
from shared.media.importing.imports import STANDARD, Import, ImportState, get_repeated, insert_import
from shared.media.importing.media_types import label
from shared.media.importing.storage import write_file
from shared.observability.telemetry import IMPORTS


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedPart:
    """A received push: the attachment that the fields describe, the file part, and the first bytes of the content."""

    attachment: Attachment
    content: ReceivedContent
    head: bytes


ReceivePush = Callable[[Sink], PushedPart]
"""Receives the body and writes the content into the sink. Raises the errors of `shared/files/errors.py`."""


def push_content(
    database: Database,
    store: BlobStore,
    settings: Settings,
    *,
    distribution_id: UUID,
    proof: Proof,
    receive: ReceivePush,
    time_limit_seconds: float,
) -> Import:
    """Store pushed content as a file, or return the import that the same push created earlier.

    Raises what `authorize_import` and `receive` raise, ByteSizeMismatch, DigestMismatch, MediaTypeMismatch,
    ImportConflict, ValidationFailed, BlobStoreUnavailable, StorageFull and ServiceUnavailable.
    """
    with database.autocommit() as session:
        # Authorize before the body is received, so that no content of an unauthorized push is stored. The transaction
        # below authorizes again.
        authorize_import(session, distribution_id)
    size = AtMost(settings.max_media_bytes)
    with stage(database, store, size=size, time_limit_seconds=time_limit_seconds) as staged:
        attachment, content = _describe(receive(staged))
        staged.seal()
        with staged.committing(in_transaction=True) as session:
            receiver = authorize_import(session, distribution_id, proof)
            kept_days = receiver.media_retention_days + settings.media_record_days
            stored = _record(session, staged, receiver, attachment, content, kept_days=kept_days)
    failpoints.hit("push.stored")
    if stored is not None:
        IMPORTS.labels(STANDARD, "stored").inc()
        return stored
    with database.autocommit() as session:
        return get_repeated(
            session,
            distribution_id=distribution_id,
            network=STANDARD,
            attachment=attachment,
        )


def _record(
    session: Session,
    staged: StagedContent,
    receiver: LiveReceiver,
    attachment: Attachment,
    content: ReceivedContent,
    *,
    kept_days: int,
) -> Import | None:
    """Write the import and its file. Return None if an earlier push of the attachment has written them."""
    file_id = new_id()
    values = {
        "distribution_id": receiver.distribution_id,
        "organization_id": receiver.organization_id,
        "network": STANDARD,
        "state": ImportState.STORED.value,
        "file_id": file_id,
        "version_id": staged.version_id,
        "kept_days": kept_days,
    }
    stored = insert_import(session, values, attachment)
    if stored is not None:
        write_file(session, staged, receiver, file_id, content)
        notify_import(session, stored)
    return stored


def _describe(pushed: PushedPart) -> tuple[Attachment, ReceivedContent]:
    """Return the descriptions to store. Raises ByteSizeMismatch, DigestMismatch, MediaTypeMismatch."""
    declared, part = normalize(pushed.attachment), pushed.content
    if declared.size_bytes not in (None, part.byte_size):
        raise ByteSizeMismatch(f"The content has {part.byte_size} bytes, not byteSize={declared.size_bytes}.")
    if declared.sha256 not in (None, part.sha256):
        raise DigestMismatch("The content does not have the digest in sha256.")
    content = replace(
        part,
        file_name=declared.file_name or part.file_name,
        media_type=label(declared.media_type or part.media_type, pushed.head),
    )
    attachment = replace(
        declared,
        location={},
        file_name=content.file_name,
        media_type=content.media_type,
        size_bytes=content.byte_size,
        sha256=content.sha256,
    )
    return attachment, content
