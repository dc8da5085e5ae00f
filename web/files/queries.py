"""What the file routes are sent: query parameters, and the body of a renewal."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from shared.files.access import VERSIONS_LIMIT
from shared.files.listing import PAGE_LIMIT, FileFilter
from shared.files.resources import Availability, Purpose
from web.files.schemas import ReferenceId
from web.http.wire_types import Between, Count, Id, RequestModel, Text, UtcTime

MINIMUM_TTL_SECONDS, MAXIMUM_TTL_SECONDS, TTL_STEP_SECONDS = 60, 86_400, 60
_REQUIRED: JsonDict = {"x-required": True}  # by the precondition, whose absence has an answer of its own
_TYPE_NAME = "[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
MediaTypeFilter = Annotated[
    str,
    Field(pattern=rf"^{_TYPE_NAME}/({_TYPE_NAME}|\*)$", examples=["image/png", "image/*"]),
]
AssociationKind = Literal["Task", "Conversation", "Message", "Schedule", "Resource"]


class UploadQuery(RequestModel):
    """The parameters of an upload."""

    operation_id: Id = Field(
        description="The same on retries of one upload; a fresh one for different content."
    )
    byte_size: Count = Field(description="The content's size in bytes.")
    organization_id: Id | None = Field(default=None, description="The payer; must equal the verified one.")
    retention_expires_at: UtcTime | None = Field(
        default=None, description="A future deadline; none for indefinite."
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
        Field(description="Life of the link in seconds, in whole minutes."),
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


class ListQuery(RequestModel):
    """The parameters of a listing."""

    cursor: Id | None = Field(default=None, description="The `nextCursor` of the page before.")
    limit: Annotated[
        Count, Between(minimum=1, maximum=PAGE_LIMIT), Field(description="Files on the page.")
    ] = 50
    purpose: Literal["AgentArtifact", "MessagingMedia"] | None = None
    availability: Literal["Pending", "Available", "Expired", "Deleted"] | None = None
    name: Annotated[str, Text(minimum=1, maximum=200)] | None = Field(
        default=None, description="Beginnings of words in the file's name, in any order and any case."
    )
    media_type: MediaTypeFilter | None = Field(
        default=None, description="A media type as `image/png`, or all of a family as `image/*`."
    )
    owner_id: Id | None = Field(default=None, description="Keep the files of this identity.")
    created_from: UtcTime | None = Field(default=None, description="The first moment; of the first upload.")
    created_to: UtcTime | None = Field(default=None, description="The moment after the last.")

    def wanted(self) -> FileFilter:
        """Say it to the domain."""
        return FileFilter(
            purpose=Purpose(self.purpose) if self.purpose else None,
            availability=Availability(self.availability) if self.availability else None,
            name=self.name,
            media_type=self.media_type.removesuffix("/*") if self.media_type else None,
            owner_id=self.owner_id,
            created_from=self.created_from,
            created_to=self.created_to,
        )


class RetentionBody(RequestModel):
    """A renewal; the field is required, and null asks for indefinite retention."""

    retention_expires_at: UtcTime | None
