"""The resources in responses, as frozen dataclasses. Unknown JSON members of a newer service are ignored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from quartermaster._wire import camel_case, read_timestamp

Resource = TypeVar("Resource")
_Member = tuple[str, str, Callable[[Any], Any]]


@dataclass(frozen=True)
class Metadata:
    """The metadata of a version's content. `retention_expires_at` is None if the file never expires."""

    file_name: str
    media_type: str
    byte_size: int
    content_sha256: str
    created_at: datetime
    retention_expires_at: datetime | None


@dataclass(frozen=True)
class Owner:
    """The identity that owns a file. `kind` is `PrincipalIdentity` or `DaemonIdentity`."""

    kind: str
    id: UUID


@dataclass(frozen=True)
class File:
    """A file with its current version."""

    id: UUID
    version_id: UUID
    revision: int
    organization_id: UUID
    purpose: str
    owner: Owner
    availability: str
    metadata: Metadata
    retention_renewal_supported: bool
    can_renew_retention: bool


@dataclass(frozen=True)
class FileVersion:
    """One version of a file."""

    version_id: UUID
    revision: int
    metadata: Metadata


@dataclass(frozen=True)
class UploadedFile:
    """The version that an upload or a replace stored. Requests to `url` need a credential, so do not share this URL."""

    id: UUID
    version_id: UUID
    revision: int
    url: str
    purpose: str
    metadata: Metadata
    replayed: bool
    availability: str = "Available"


@dataclass(frozen=True)
class DeletedFile:
    """A deleted file."""

    id: UUID
    availability: str
    deleted_at: datetime
    replayed: bool


@dataclass(frozen=True)
class ReadLink:
    """A link to one exact version. `url` is a secret, because it grants read access. The service returns it once."""

    id: UUID
    version_id: UUID
    url: str = field(repr=False)
    access_expires_at: datetime
    retention_expires_at: datetime | None
    link_id: UUID = field(metadata={"wire": "grantId"})


@dataclass(frozen=True)
class ListedLink:
    """An existing link. The service does not return its URL again."""

    link_id: UUID = field(metadata={"wire": "grantId"})
    file_id: UUID
    version_id: UUID
    created_by: UUID
    created_at: datetime
    access_expires_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True)
class Reference:
    """A reference from a resource to a file, which prevents the deletion of the file."""

    kind: str
    reference_id: str
    created_at: datetime


def read(kind: type[Resource], body: Mapping[str, Any]) -> Resource:
    """Return a resource, parsed from the JSON of a response."""
    members = _members(cast("Any", kind))
    # Skip absent members, so that their fields keep the default: an older service does not send every member.
    return kind(**{name: reader(body[key]) for name, key, reader in members if key in body})


# Cache the result: evaluating type hints takes longer than reading a resource.
@cache
def _members(kind: Any) -> tuple[_Member, ...]:
    hints = get_type_hints(kind)
    spell = str if getattr(kind, "is_snake_case", False) else camel_case
    return tuple(
        (at.name, at.metadata.get("wire", spell(at.name)), _reader(hints[at.name])) for at in fields(kind)
    )


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return the function that converts a JSON value to a field's type."""
    if type(None) in get_args(hint):
        inner = _reader(next(at for at in get_args(hint) if at is not type(None)))
        return lambda value: None if value is None else inner(value)
    if hint is datetime:
        return read_timestamp
    # Amounts are text in JSON, so that no float rounds them: construct UUID and Decimal from text.
    if hint in (UUID, Decimal):
        return cast("Callable[[Any], Any]", hint)
    if get_origin(hint) is tuple:
        each = _reader(get_args(hint)[0])
        return lambda value: tuple(map(each, value))
    if is_dataclass(hint):
        return lambda value: read(hint, value)  # type: ignore[arg-type]
    return lambda value: value
