"""JSON and form schemas of pushed media, and of imports in responses."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, RootModel

from shared.media.importing.descriptions import MEDIA_TYPE
from shared.media.importing.imports import Import, ImportState
from shared.pagination import Page
from web.http.schemas import PageQuery
from web.http.wire_types import CamelModel, Count, Id, JsonCount, RequestModel, Text, UtcTime

MAXIMUM_ITEMS = 50
MAXIMUM_NAME_CHARACTERS = 1000

ExternalId = Annotated[str, Text(minimum=1, maximum=255)]
FileName = Annotated[str, Field(min_length=1, max_length=MAXIMUM_NAME_CHARACTERS)]
MediaType = Annotated[str, Field(max_length=255, pattern=f"^{MEDIA_TYPE}$")]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Url = Annotated[str, Field(max_length=8000, pattern=r"^[Hh][Tt][Tt][Pp][Ss]?://[^\s/?#]+")]
HeaderName = Annotated[str, Field(min_length=1, max_length=200)]
HeaderValue = Annotated[str, Field(max_length=8192)]


class AttachedMedia(RequestModel):
    """An attachment of a message: to be fetched, or pushed earlier."""

    attachment_id: ExternalId = Field(description="The network's id of the attachment.")
    url: Url | None = Field(
        default=None,
        description="Where to fetch the attachment; without it, an attachment of this message that was pushed earlier.",
    )
    file_name: FileName | None = Field(default=None, description="Its file name, cleaned like an upload's.")
    media_type: MediaType | None = Field(
        default=None, description="Its media type, checked against the content."
    )
    byte_size: JsonCount | None = Field(default=None, description="Its exact size in bytes, if known.")
    sha256: Sha256 | None = Field(default=None, description="The SHA-256 of its content, if known.")
    headers: Annotated[Mapping[HeaderName, HeaderValue], Field(max_length=32)] | None = Field(
        default=None,
        description="Headers to send when fetching, such as Authorization; kept encrypted and erased afterwards.",
    )


class NewMediaItem(AttachedMedia):
    """An attachment of a message, to be fetched."""

    url: Url = Field(description="Where to fetch the attachment, soon after the response.")
    file_name: FileName = Field(description="Its file name, cleaned like an upload's.")
    media_type: MediaType = Field(description="Its media type, checked against the content.")


class NewMedia(NewMediaItem):
    """An attachment to be fetched, with the ids of its message."""

    message_id: ExternalId = Field(description="The network's id of the message.")
    conversation_id: ExternalId | None = Field(
        default=None, description="The network's id of the conversation."
    )


class NewMediaBatch(RequestModel):
    """Several attachments of one message, to be fetched."""

    message_id: ExternalId = Field(description="The network's id of the message.")
    conversation_id: ExternalId | None = Field(
        default=None, description="The network's id of the conversation."
    )
    items: Annotated[Sequence[NewMediaItem], Field(min_length=1, max_length=MAXIMUM_ITEMS)]


class NewMediaFields(RequestModel):
    """The fields of a form with the part `file`; they override the part's own name and type."""

    message_id: ExternalId = Field(description="The network's id of the message.")
    attachment_id: ExternalId = Field(description="The network's id of the attachment.")
    conversation_id: ExternalId | None = Field(
        default=None, description="The network's id of the conversation."
    )
    file_name: FileName | None = None
    media_type: MediaType | None = None
    byte_size: Count | None = Field(default=None, description="The exact size of the file, if known.")
    sha256: Sha256 | None = Field(default=None, description="The SHA-256 of the file, if known.")


class ImportBody(CamelModel):
    """The current state of an import."""

    import_id: Id
    state: ImportState
    code: str | None = Field(
        description="Why it failed or is held; while it waits for another attempt, why the last one failed."
    )
    network: str = Field(description="The messaging network; `standard` for media pushed to this API.")
    message_id: str
    attachment_id: str
    conversation_id: str | None
    attempts: JsonCount = Field(description="Number of attempts to fetch it.")
    file_id: Id | None = Field(description="The stored file, once it is Stored.")
    version_id: Id | None
    created_at: UtcTime
    ended_at: UtcTime | None = Field(description="When it was Stored or Failed.")

    @classmethod
    def of(cls, imported: Import) -> Self:
        """Return the JSON of an import."""
        return cls(**_fields(imported))


class PushedImportBody(ImportBody):
    """The import that a push created or found."""

    replayed: bool = Field(description="Whether an earlier push created it.")

    @classmethod
    def of(cls, imported: Import) -> Self:
        """Return the JSON of an import."""
        return cls(replayed=not imported.is_new, **_fields(imported))


class ImportList(CamelModel):
    """The imports of a message's attachments, in the order they were pushed."""

    items: Sequence[PushedImportBody]


class PushResult(RootModel[PushedImportBody | ImportList]):
    """The import of a pushed attachment; for `items`, one import each."""


class ImportPage(CamelModel):
    """A page of imports, newest first."""

    imports: Sequence[ImportBody]
    next_cursor: Id | None

    @classmethod
    def of(cls, page: Page[Import]) -> Self:
        """Return the JSON of a page."""
        return cls.model_validate(
            {"imports": [ImportBody.of(at) for at in page.items], "next_cursor": page.next_cursor}
        )


class RetryRequest(RequestModel):
    """Which imports to retry; without a field, all that failed or are held."""

    state: Literal["Failed", "Held"] | None = Field(default=None, description="Only imports in this state.")
    code: str | None = Field(default=None, max_length=100, description="Only imports with this code.")
    since: UtcTime | None = Field(default=None, description="Only imports pushed at or after this time.")


class RetriedImports(CamelModel):
    """How many imports are retried; repeat the request while the count equals the limit of 500."""

    count: JsonCount


class ImportQuery(PageQuery):
    """Parameters of a list of imports."""

    state: Literal["Queued", "Fetching", "Held", "Stored", "Failed"] | None = Field(
        default=None, description="Only imports in this state."
    )


def _fields(imported: Import) -> dict[str, Any]:
    # Leave the id out here, because it has another name on the wire.
    shown = ImportBody.model_fields.keys() - {"import_id"}
    return {"import_id": imported.id, **{name: getattr(imported, name) for name in shown}}
