"""The JSON bodies and query parameters of the file routes, as docs/specification/files.md#file names them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import Field, create_model, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from shared.files.access import VERSIONS_LIMIT
from shared.files.filters import FILTERS, FileFilter, FilterDeclaration
from shared.files.grants import ListedGrant
from shared.files.listing import PAGE_LIMIT
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
from shared.files.retention import POLICIES
from shared.identity.access.callers import OwnerKind
from web.http.wire_types import Between, CamelModel, Count, Id, JsonCount, RequestModel, Text, UtcTime

MINIMUM_TTL_SECONDS, MAXIMUM_TTL_SECONDS, TTL_STEP_SECONDS = 60, 86_400, 60
# Mark the parameter as required in OpenAPI only: without it the response is 428, and not 422.
_REQUIRED: JsonDict = {"x-required": True}
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
ReferenceId = Annotated[str, Text(minimum=1, maximum=200)]
AssociationKind = Literal["Task", "Conversation", "Message", "Schedule", "Resource"]


class Metadata(CamelModel):
    """Metadata of content that is safe to show."""

    file_name: str
    media_type: str
    byte_size: JsonCount
    content_sha256: Sha256
    created_at: UtcTime
    retention_expires_at: UtcTime | None = Field(description="When content ends; null for no timed expiry.")

    @classmethod
    def of(cls, version: Version, retention_expires_at: datetime | None) -> Metadata:
        """Build the metadata of a version."""
        return cls(
            file_name=version.file_name,
            media_type=version.media_type,
            byte_size=version.byte_size,
            content_sha256=version.content_sha256.hex(),
            created_at=version.created_at,
            retention_expires_at=retention_expires_at,
        )


class OwnerBody(CamelModel):
    """The identity that owns a file."""

    kind: OwnerKind
    id: Id


class FileBody(CamelModel):
    """A file at the moment of the request."""

    id: Id
    version_id: Id = Field(description="The current version.")
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
        """Build the description of a file."""
        return cls(
            id=file.id,
            version_id=file.version.id,
            revision=file.revision,
            organization_id=file.organization_id,
            purpose=file.purpose,
            owner=OwnerBody(kind=file.owner_kind, id=file.owner_id),
            availability=file.availability,
            metadata=Metadata.of(file.version, file.retention_expires_at),
            retention_renewal_supported=POLICIES[file.purpose].is_renewable,
            can_renew_retention=can_renew,
        )


class FilePage(CamelModel):
    """Some files, newest first, and the cursor of the next page."""

    files: Sequence[FileBody]
    next_cursor: Id | None


class VersionBody(CamelModel):
    """One version of a file."""

    version_id: Id
    revision: JsonCount
    metadata: Metadata


class VersionPage(CamelModel):
    """Some versions of a file, newest first, and the cursor of the next page."""

    versions: Sequence[VersionBody]
    next_cursor: Id | None


class UploadResult(CamelModel):
    """The version that an upload or a replace stored."""

    id: Id
    version_id: Id
    revision: JsonCount
    url: str = Field(description="The URL of the content, which requires a credential; not a link to share.")
    purpose: Purpose
    metadata: Metadata
    replayed: bool = Field(description="Whether this is the result of an earlier attempt.")

    @classmethod
    def of(cls, receipt: Receipt, url: str) -> Self:
        """Build the result of a stored version."""
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
    """A version that is committed and not yet placed."""

    availability: Literal["Pending"] = "Pending"


class GrantBody(CamelModel):
    """A read grant; its URL is a secret and is returned only once."""

    id: Id = Field(description="The file.")
    grant_id: Id = Field(description="The grant, for its revocation.")
    version_id: Id
    url: str
    access_expires_at: UtcTime
    retention_expires_at: UtcTime | None

    @classmethod
    def of(cls, grant: ReadGrant, url: str) -> GrantBody:
        """Build the description of a grant."""
        return cls(
            id=grant.file_id,
            grant_id=grant.id,
            version_id=grant.version_id,
            url=url,
            access_expires_at=grant.access_expires_at,
            retention_expires_at=grant.retention_expires_at,
        )


class ListedGrantBody(CamelModel):
    """A read grant without its URL, which was returned only once."""

    grant_id: Id
    file_id: Id
    version_id: Id
    created_by: Id = Field(description="The identity or user that created it.")
    created_at: UtcTime
    access_expires_at: UtcTime
    revoked_at: UtcTime | None

    @classmethod
    def of(cls, grant: ListedGrant) -> ListedGrantBody:
        """Build the description of a grant."""
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
    """Some read grants of a file, newest first, and the cursor of the next page."""

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
        """Build the result of a deletion."""
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
        """Build the description of a reference."""
        return cls(
            kind=ReferenceKind(reference.kind),
            reference_id=reference.reference_id,
            created_at=reference.created_at,
        )


class ReferenceList(CamelModel):
    """The references to a file, oldest first."""

    references: Sequence[ReferenceBody]


class UploadQuery(RequestModel):
    """The parameters of an upload."""

    operation_id: Id = Field(
        description="Keep it for retries of one upload; use a new one for different content."
    )
    byte_size: Count = Field(description="The content's size in bytes.")
    organization_id: Id | None = Field(default=None, description="The payer; must equal the caller's.")
    retention_expires_at: UtcTime | None = Field(
        default=None, description="A future deadline; omit it for indefinite retention."
    )
    association_kind: AssociationKind | None = Field(
        default=None, description="With associationId: a reference."
    )
    association_id: ReferenceId | None = Field(default=None, description="With associationKind: a reference.")

    @model_validator(mode="after")
    def _both_or_neither(self) -> UploadQuery:
        if (self.association_kind is None) != (self.association_id is None):
            raise PydanticCustomError(
                "pair", "associationKind and associationId go together: send both or neither"
            )
        return self


class ReplaceQuery(RequestModel):
    """The parameters of a replace."""

    operation_id: Id
    byte_size: Count
    expected_version_id: Id | None = Field(
        default=None, description="The current version.", json_schema_extra=_REQUIRED
    )
    expected_revision: Count | None = Field(
        default=None, description="The current revision.", json_schema_extra=_REQUIRED
    )


class DeleteQuery(RequestModel):
    """The parameters of a delete."""

    operation_id: Id


class GrantQuery(RequestModel):
    """The parameters of a grant."""

    ttl_seconds: Annotated[
        Count,
        Between(minimum=MINIMUM_TTL_SECONDS, maximum=MAXIMUM_TTL_SECONDS, step=TTL_STEP_SECONDS),
        Field(description="The link's lifetime in seconds, a multiple of 60."),
    ] = 3600


class GrantListQuery(RequestModel):
    """The parameters of a listing of read grants."""

    cursor: Id | None = Field(default=None, description="The `nextCursor` of the page before.")
    limit: Annotated[
        Count, Between(minimum=1, maximum=PAGE_LIMIT), Field(description="Grants on the page.")
    ] = 50


class ContentQuery(RequestModel):
    """The parameters of a download with credentials; a grant names its version itself."""

    version_id: Id | None = Field(default=None, description="An earlier version; the current one by default.")
    disposition: Literal["attachment", "inline"] | None = Field(
        default=None,
        description="With a grant: `inline` to show images (not SVG), audio, video, PDF and plain text in a page.",
    )


class VersionsQuery(RequestModel):
    """The parameters of a listing of versions."""

    cursor: Id | None = Field(default=None, description="The `nextCursor` of the page before.")
    limit: Annotated[
        Count, Between(minimum=1, maximum=VERSIONS_LIMIT), Field(description="Versions on the page.")
    ] = VERSIONS_LIMIT


class FileListQuery(RequestModel):
    """The parameters of a listing: those of `FileListQuery`, and one for each declared filter (`ListQuery`)."""

    cursor: Id | None = Field(default=None, description="The `nextCursor` of the page before.")
    limit: Annotated[
        Count, Between(minimum=1, maximum=PAGE_LIMIT), Field(description="Files on the page.")
    ] = 50

    def file_filter(self) -> FileFilter:
        """Return the filter of the domain."""
        sent = {each: getattr(self, each.name) for each in FILTERS}
        return FileFilter(
            **{
                each.name: each.kind(value) if each.choices and value is not None else value
                for each, value in sent.items()
            }
        )


def _filter_type(declared: FilterDeclaration) -> Any:
    """Return the type of the query parameter for a declared filter."""
    if declared.choices:
        return Literal[tuple(declared.choices)]
    if declared.pattern is not None:
        return Annotated[str, Field(pattern=declared.pattern, examples=list(declared.examples))]
    return {UUID: Id, datetime: UtcTime, str: Annotated[str, Text(minimum=1, maximum=200)]}[declared.kind]


_FILTER_FIELDS: dict[str, Any] = {
    each.name: (_filter_type(each) | None, Field(default=None, description=each.description))
    for each in FILTERS
}
ListQuery = create_model("ListQuery", __base__=FileListQuery, __doc__=FileListQuery.__doc__, **_FILTER_FIELDS)


class RetentionBody(RequestModel):
    """A renewal; the field is required, and null asks for indefinite retention."""

    retention_expires_at: UtcTime | None
