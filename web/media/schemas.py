"""The JSON and the form fields of pushed media, and what is shown of imports."""

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
    """One attachment of a message: to be fetched, or pushed before."""

    attachment_id: ExternalId = Field(description="The network's id of the attachment.")
    url: Url | None = Field(
        default=None,
        description="Where the attachment is; without it, one that was pushed before as media of this message.",
    )
    file_name: FileName | None = Field(default=None, description="Its name; cleaned of whatever is no name.")
    media_type: MediaType | None = Field(
        default=None, description="Its media type, which is checked against its content."
    )
    byte_size: JsonCount | None = Field(default=None, description="Its exact size, if known.")
    sha256: Sha256 | None = Field(default=None, description="The SHA-256 of its content, if known.")
    headers: Annotated[Mapping[HeaderName, HeaderValue], Field(max_length=32)] | None = Field(
        default=None,
        description="Headers to send when fetching, such as Authorization; kept secret, and erased afterwards.",
    )


class NewMediaItem(AttachedMedia):
    """One attachment of a message, to be fetched."""

    url: Url = Field(description="Where the attachment is; fetched soon after the answer.")
    file_name: FileName = Field(description="Its name; cleaned of whatever is no name.")
    media_type: MediaType = Field(description="Its media type, which is checked against its content.")


class NewMedia(NewMediaItem):
    """A message's attachment, to be fetched."""

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
    """The fields of a form that brings an attachment as its part `file`, whose own name and type they override."""

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
    """An import, as it is now."""

    import_id: Id
    state: ImportState
    code: str | None = Field(
        description="Why it failed, or, while it waits for another attempt, why the last one did."
    )
    network: str = Field(description="`standard` for what was pushed in our own way.")
    message_id: str
    attachment_id: str
    conversation_id: str | None
    attempts: JsonCount = Field(description="How often it was begun to fetch it.")
    file_id: Id | None = Field(description="The file it became, once it is Stored.")
    version_id: Id | None
    created_at: UtcTime
    ended_at: UtcTime | None = Field(description="When it was Stored or Failed.")

    @classmethod
    def of(cls, imported: Import) -> Self:
        """Show an import."""
        return cls(**_fields(imported))


class PushedImportBody(ImportBody):
    """The import that a push made, or found."""

    replayed: bool = Field(description="Whether an earlier push had made it.")

    @classmethod
    def of(cls, imported: Import) -> Self:
        """Show an import."""
        return cls(replayed=not imported.is_new, **_fields(imported))


class ImportList(CamelModel):
    """The imports of one message's attachments, in the order they were pushed."""

    items: Sequence[PushedImportBody]


class PushResult(RootModel[PushedImportBody | ImportList]):
    """The import of what was pushed, or, where `items` were, one for each."""


class ImportPage(CamelModel):
    """Some imports, newest first, and where the next page begins."""

    imports: Sequence[ImportBody]
    next_cursor: Id | None

    @classmethod
    def of(cls, page: Page[Import]) -> Self:
        """Show a page."""
        return cls.model_validate(
            {"imports": [ImportBody.of(at) for at in page.items], "next_cursor": page.next_cursor}
        )


class RetryRequest(RequestModel):
    """Which imports to try again; all that failed or are held where nothing is named."""

    state: Literal["Failed", "Held"] | None = Field(default=None, description="Only imports in this state.")
    code: str | None = Field(default=None, max_length=100, description="Only imports with this code.")
    since: UtcTime | None = Field(default=None, description="Only imports that were pushed from then on.")


class RetriedImports(CamelModel):
    """How many imports are tried again; ask once more while it is as many as are taken at once."""

    count: JsonCount


class ImportQuery(PageQuery):
    """The parameters of a listing of imports."""

    state: Literal["Queued", "Fetching", "Held", "Stored", "Failed"] | None = Field(
        default=None, description="Only imports in this state."
    )


def _fields(imported: Import) -> dict[str, Any]:
    shown = ImportBody.model_fields.keys() - {"import_id"}
    return {"import_id": imported.id, **{name: getattr(imported, name) for name in shown}}
