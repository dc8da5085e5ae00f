"""Find the version to download. Credentials open any version of a file; a grant opens only the grant's version."""

from uuid import UUID

from sqlalchemy import bindparam, select

from shared.db.database import Session
from shared.files.access import authorize, get_file, get_version, refuse_ended
from shared.files.blobs.base import BlobDamaged, BlobStore
from shared.files.errors import FileNotFound, FilePending
from shared.files.resources import Availability, Content
from shared.files.tables import blobs
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission

_BLOB = select(blobs.c.state, blobs.c.damaged_at).where(blobs.c.version_id == bindparam("version_id"))


_CHECKSUMS = select(blobs.c.chunk_checksums).where(blobs.c.version_id == bindparam("version_id"))


def find_chunk_checksums(session: Session, version_id: UUID) -> bytes | None:
    """Return the checksums of a version's chunks.

    Return None if no checksums are recorded yet, or if the store verifies its content itself.
    """
    found = session.execute(_CHECKSUMS, {"version_id": version_id}).scalar_one_or_none()
    return None if found is None else bytes(found)


def get_content(session: Session, caller: Caller, file_id: UUID, version_id: UUID | None) -> Content:
    """Return a version's content, by default the current version's.

    Raises FileNotFound, PermissionDenied, VersionNotFound, FileExpired, FileDeleted.
    """
    file = get_file(session, caller, file_id, Permission.FILE_READ, pending=Availability.PENDING)
    refuse_ended(file)
    # The file's row was read together with its current version's blob, so this common case needs no second statement.
    if version_id is None or version_id == file.version.id:
        is_placed = file.availability is Availability.AVAILABLE
        return Content(
            organization_id=file.organization_id,
            owner_id=file.owner_id,
            version=file.version,
            is_placed=is_placed,
            is_damaged=file.is_damaged,
        )
    # Read the earlier version's blob: it may be placed or damaged although the current version's blob is not.
    version = get_version(session, file_id, version_id)
    blob = session.execute(_BLOB, {"version_id": version_id}).one_or_none()
    return Content(
        organization_id=file.organization_id,
        owner_id=file.owner_id,
        version=version,
        is_placed=blob is not None and blob.state == "live",
        is_damaged=blob is not None and blob.damaged_at is not None,
    )


def authorize_reading(content: Content, caller: Caller) -> None:
    """Raise FileNotFound or PermissionDenied unless the caller may still read this content."""
    if content.owner_id is None:
        raise FileNotFound  # the content was opened by a grant, which gives no access by credentials
    authorize(
        caller, Permission.FILE_READ, owner_id=content.owner_id, organization_id=content.organization_id
    )


def refuse_unreadable(content: Content, store: BlobStore) -> None:
    """Raise FilePending if this store cannot read the content yet, BlobDamaged if the content is damaged."""
    if content.is_damaged:
        raise BlobDamaged
    if not content.is_placed and not store.can_read_staged(content.version.id):
        raise FilePending
