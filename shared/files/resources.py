"""The values that the files domain returns. They are immutable, complete and independent of any transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self
from uuid import UUID

from sqlalchemy import Row

from shared.identity.access.callers import OwnerKind


class Purpose(StrEnum):
    """The purpose of a file; the route sets it, never the client."""

    AGENT_ARTIFACT = "AgentArtifact"
    MESSAGING_MEDIA = "MessagingMedia"

    @property
    def supports_replace(self) -> bool:
        """Whether content may be replaced. Messaging media may not: it is a record of what was received."""
        return self is Purpose.AGENT_ARTIFACT


class Availability(StrEnum):
    """Whether a file's content can be read."""

    PENDING = "Pending"
    AVAILABLE = "Available"
    EXPIRED = "Expired"
    DELETED = "Deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedContent:
    """The description of content that was received completely: its name, type, size and digest."""

    file_name: str
    """The name after cleaning (`file_names.py`)."""
    media_type: str
    byte_size: int
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One immutable content of a file."""

    id: UUID
    file_id: UUID
    revision: int
    file_name: str
    media_type: str
    byte_size: int
    content_sha256: bytes
    created_at: datetime

    @classmethod
    def of(cls, row: Row[Any], version_id: UUID, file_id: UUID) -> Self:
        """Build a version from a row with the columns of `file_versions`; the two ids are passed separately."""
        return cls(
            id=version_id,
            file_id=file_id,
            revision=row.revision,
            file_name=row.file_name,
            media_type=row.media_type,
            byte_size=row.byte_size,
            content_sha256=row.content_sha256,
            created_at=row.created_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """The state of a file at one moment, with its current version."""

    id: UUID
    organization_id: UUID
    payer_id: UUID
    purpose: Purpose
    owner_kind: OwnerKind
    owner_id: UUID
    availability: Availability
    revision: int
    retention_expires_at: datetime | None
    ended_at: datetime | None
    version: Version
    is_damaged: bool
    """Whether the last check found that the current version's bytes do not match its digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The result of an upload or a replace: the version, and whether this was a retry."""

    version: Version
    purpose: Purpose
    retention_expires_at: datetime | None
    availability: Availability
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """The result of a delete."""

    file_id: UUID
    deleted_at: datetime
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference from a resource to a file, which prevents the file's deletion."""

    kind: str
    reference_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGrant:
    """A token that lets any bearer read one version. Only the call that creates the grant returns `token`."""

    id: UUID
    file_id: UUID
    version_id: UUID
    token: str
    access_expires_at: datetime
    retention_expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A version to be read. `is_placed` says under which of the store's keys its bytes are found first."""

    organization_id: UUID
    owner_id: UUID | None = None
    version: Version
    is_placed: bool
    is_damaged: bool
    """Whether the last check found that the version's bytes do not match its digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of files, and the cursor of the next page; the cursor is None on the last page."""

    files: Sequence[File]
    next_cursor: UUID | None
