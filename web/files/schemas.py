"""The file routes' JSON and parameters, as docs/specification/files.md#file names them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field
from pydantic.config import JsonDict

from shared.files.grant_revocation import ListedGrant
from shared.files.references import ReferenceKind
from shared.files.resources import (
    Availability,
    Deletion,
    File,
    Purpose,
    ReadGrant,
    Receipt,
    Reference,
    Version,
)
from shared.identity.access.callers import OwnerKind
from web.http.wire_types import CamelModel, Id, JsonCount, Text, UtcTime

MINIMUM_TTL_SECONDS, MAXIMUM_TTL_SECONDS, TTL_STEP_SECONDS = 60, 86_400, 60
_REQUIRED: JsonDict = {"x-required": True}  # by the precondition, whose absence has an answer of its own
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
ReferenceId = Annotated[str, Text(minimum=1, maximum=200)]
AssociationKind = Literal["Task", "Conversation", "Message", "Schedule", "Resource"]


class Metadata(CamelModel):
    """Safe content metadata."""

    file_name: str
    media_type: str
    byte_size: JsonCount
    content_sha256: Sha256
    created_at: UtcTime
    retention_expires_at: UtcTime | None = Field(description="When content ends; null for no timed expiry.")

    @classmethod
    def of(cls, version: Version, retention_expires_at: datetime | None) -> Metadata:
        """Describe a version."""
        return cls(
            file_name=version.file_name,
            media_type=version.media_type,
            byte_size=version.byte_size,
            content_sha256=version.content_sha256.hex(),
            created_at=version.created_at,
            retention_expires_at=retention_expires_at,
        )


class OwnerBody(CamelModel):
    """The identity whose file it is."""

    kind: OwnerKind
    id: Id


class FileBody(CamelModel):
    """A file, as it is now."""

    id: Id
    version_id: Id = Field(description="The current version: exact content.")
    revision: JsonCount
    organization_id: Id
    purpose: Purpose
    owner: OwnerBody
    availability: Availability
    metadata: Metadata
    retention_renewal_supported: bool = Field(description="Whether files of this purpose can be renewed.")
    can_renew_retention: bool = Field(description="Whether this caller may renew this file.")

    @classmethod
    def of(cls, file: File, *, can_renew: bool) -> FileBody:
        """Describe a file to a caller."""
        return cls(
            id=file.id,
            version_id=file.version.id,
            revision=file.revision,
            organization_id=file.organization_id,
            purpose=file.purpose,
            owner=OwnerBody(kind=file.owner_kind, id=file.owner_id),
            availability=file.availability,
            metadata=Metadata.of(file.version, file.retention_expires_at),
            retention_renewal_supported=file.purpose.supports_renewal,
            can_renew_retention=can_renew,
        )


class FilePage(CamelModel):
    """Some files, newest first, and where the next page begins."""

    files: Sequence[FileBody]
    next_cursor: Id | None


class VersionBody(CamelModel):
    """One version of a file."""

    version_id: Id
    revision: JsonCount
    metadata: Metadata


class VersionPage(CamelModel):
    """Some versions of a file, newest first, and where the next page begins."""

    versions: Sequence[VersionBody]
    next_cursor: Id | None


class UploadResult(CamelModel):
    """The version that an upload or a replace stored."""

    id: Id
    version_id: Id
    revision: JsonCount
    url: str = Field(description="The protected content address; not a link to share.")
    purpose: Purpose
    metadata: Metadata
    replayed: bool = Field(description="Whether this is the result of an earlier attempt.")

    @classmethod
    def of(cls, receipt: Receipt, url: str) -> Self:
        """Describe a stored version."""
        return cls(
            id=receipt.version.file_id,
            version_id=receipt.version.id,
            revision=receipt.version.revision,
            url=url,
            purpose=receipt.purpose,
            metadata=Metadata.of(receipt.version, receipt.retention_expires_at),
            replayed=receipt.replayed,
        )


class PendingUploadResult(UploadResult):
    """A version that is committed and still being placed."""

    availability: Literal["Pending"] = "Pending"


class GrantBody(CamelModel):
    """A read grant; its url is a secret, shown once."""

    id: Id = Field(description="The file.")
    grant_id: Id = Field(description="The grant, to revoke it by.")
    version_id: Id
    url: str
    access_expires_at: UtcTime
    retention_expires_at: UtcTime | None

    @classmethod
    def of(cls, grant: ReadGrant, url: str) -> GrantBody:
        """Describe a grant."""
        return cls(
            id=grant.file_id,
            grant_id=grant.id,
            version_id=grant.version_id,
            url=url,
            access_expires_at=grant.access_expires_at,
            retention_expires_at=grant.retention_expires_at,
        )


class ListedGrantBody(CamelModel):
    """A read grant without its url, which was shown once."""

    grant_id: Id
    file_id: Id
    version_id: Id
    created_by: Id = Field(description="The identity or user who made it.")
    created_at: UtcTime
    access_expires_at: UtcTime
    revoked_at: UtcTime | None

    @classmethod
    def of(cls, grant: ListedGrant) -> ListedGrantBody:
        """Describe a grant."""
        return cls(
            grant_id=grant.grant_id,
            file_id=grant.file_id,
            version_id=grant.version_id,
            created_by=grant.created_by,
            created_at=grant.created_at,
            access_expires_at=grant.access_expires_at,
            revoked_at=grant.revoked_at,
        )


class GrantPage(CamelModel):
    """Some read grants of a file, newest first, and where the next page begins."""

    grants: Sequence[ListedGrantBody]
    next_cursor: Id | None


class DeletionBody(CamelModel):
    """A file that was deleted."""

    id: Id
    availability: Literal["Deleted"]
    deleted_at: UtcTime
    replayed: bool

    @classmethod
    def of(cls, deletion: Deletion) -> DeletionBody:
        """Describe a deletion."""
        return cls(
            id=deletion.file_id,
            availability="Deleted",
            deleted_at=deletion.deleted_at,
            replayed=deletion.replayed,
        )


class ReferenceBody(CamelModel):
    """A resource that refers to a file."""

    kind: ReferenceKind
    reference_id: ReferenceId
    created_at: UtcTime

    @classmethod
    def of(cls, reference: Reference) -> ReferenceBody:
        """Describe a reference."""
        return cls(
            kind=ReferenceKind(reference.kind),
            reference_id=reference.reference_id,
            created_at=reference.created_at,
        )


class ReferenceList(CamelModel):
    """What refers to a file, oldest first."""

    references: Sequence[ReferenceBody]
