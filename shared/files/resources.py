"""The values the file domain gives out: frozen, complete, independent of any transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self
from uuid import UUID

from sqlalchemy import Row

from shared.identity.access.callers import OwnerKind


class Purpose(StrEnum):
    """What a file is for; set by the route, never by the client."""

    AGENT_ARTIFACT = "AgentArtifact"
    MESSAGING_MEDIA = "MessagingMedia"

    @property
    def supports_replace(self) -> bool:
        """Whether content may be replaced: messaging media is what was received."""
        return self is Purpose.AGENT_ARTIFACT


class Availability(StrEnum):
    """Whether content is available."""

    PENDING = "Pending"
    AVAILABLE = "Available"
    EXPIRED = "Expired"
    DELETED = "Deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedContent:
    """Content that was received, all of it, counted and hashed on the way."""

    file_name: str
    """Its cleaned name."""
    media_type: str
    byte_size: int
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """Exact content."""

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
        """Read a version from a row that has the columns of `versions`, whatever the two ids are called there."""
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
    """A file as it is at one moment, with its current version."""

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
    """Whether the current version's bytes were last found to be others than its digest says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The outcome of an upload or a replace: one version, and whether this was a retry."""

    version: Version
    purpose: Purpose
    retention_expires_at: datetime | None
    availability: Availability
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """The outcome of a delete."""

    file_id: UUID
    deleted_at: datetime
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A resource that points at a file and keeps it from being deleted."""

    kind: str
    reference_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGrant:
    """Bearer access to one version; `token` is known only when the grant is made."""

    id: UUID
    file_id: UUID
    version_id: UUID
    token: str
    access_expires_at: datetime
    retention_expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A version whose bytes may be read now; `is_placed` says under which key to look first."""

    organization_id: UUID
    owner_id: UUID | None = None
    version: Version
    is_placed: bool
    is_damaged: bool
    """Whether its bytes were last found to be others than its digest says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some files, and the cursor at which the next page begins (None at the end)."""

    files: Sequence[File]
    next_cursor: UUID | None
