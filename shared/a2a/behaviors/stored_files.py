"""Store content of an agent as a file: exactly once, with the turn's owner and payer, and with a task reference.

The owner is the turn's receiving identity, else the service account (docs/specification/files.md#ownership). A `Task`
reference keeps the file until the task is deleted. The upload's operationId is derived from the turn and the content,
so another run finds the same file. The artifact's part has the file's address without a secret;
`shared/a2a/file_links.py` replaces it by a link.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from shared import failpoints
from shared.a2a.file_links import content_address
from shared.a2a.types import Part
from shared.a2a.updates import Turn
from shared.config.settings import Settings
from shared.db.database import Database
from shared.files.access import OVER_OWNER
from shared.files.blobs.base import BlobStore
from shared.files.file_names import clean_file_name
from shared.files.lifecycle.placement import wait_while_staged
from shared.files.references import ReferenceKind
from shared.files.resources import Availability, Receipt, ReceivedContent
from shared.files.staging import Sink
from shared.files.uploads import Association, UploadRequest, upload
from shared.identity.access.permissions import Permission
from shared.runtime.retry import retry

EXTENSION = "/extensions/file-artifact/v1"
UPLOAD_SECONDS = 600.0
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """Content to store. `key` distinguishes the files of a turn, and is the same in each run of the turn."""

    key: str
    name: str
    media_type: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A part that stands for a file, and its data for the extension `file-artifact`."""

    part: Part
    description: dict[str, Any]


class StoredFiles:
    """Stores the files of turns; safe to share between threads."""

    def __init__(self, database: Database, store: BlobStore, settings: Settings) -> None:
        self._database = database
        self._store = store
        self._settings = settings

    def store(self, turn: Turn, new: NewFile) -> StoredFile:
        """Store a file, or return the one that an earlier run of the turn stored.

        Raises PermissionDenied if the service account may not create or share files, and what `upload` raises.
        """
        _require_sharing(turn)
        content = ReceivedContent(
            file_name=clean_file_name(new.name),
            media_type=new.media_type,
            byte_size=len(new.content),
            sha256=hashlib.sha256(new.content).digest(),
        )
        request = UploadRequest(
            operation_id=uuid5(
                turn.id, f"file/{new.key}/{content.media_type}/{content.file_name}/{content.sha256.hex()}"
            ),
            organization_id=turn.caller.payer_id,
            byte_size=content.byte_size,
            retention_expires_at=self._deadline(turn),
            association=Association(kind=ReferenceKind.TASK, id=str(turn.task_id)),
            time_limit_seconds=UPLOAD_SECONDS,
        )

        def receive(sink: Sink) -> ReceivedContent:
            sink.open()
            for start in range(0, len(new.content), CHUNK_BYTES):
                sink.write(memoryview(new.content)[start : start + CHUNK_BYTES])
            return content

        # The content has been paid for (model, remote agent): do not lose it because the store is unavailable for a
        # moment.
        receipt = retry(lambda: upload(self._database, self._store, turn.caller, request, receive))
        failpoints.hit("agents.file_stored")
        # Wait until the bytes are stored, because readers may open the link at once.
        if receipt.availability is Availability.PENDING:
            wait_while_staged(self._database, receipt.version.id, self._settings.upload_wait_seconds)
        return self._stored(receipt)

    def describe(self, turn: Turn, stored: StoredFile) -> dict[str, Any]:
        """Return the metadata for a file under the extension's URI, or no metadata if the extension is inactive."""
        uri = file_artifact_uri(self._settings.base_url)
        return {uri: stored.description} if uri in turn.active_extensions else {}

    def _deadline(self, turn: Turn) -> datetime | None:
        """Return the retention deadline, counted from the turn's creation, so it is the same in each run."""
        days = self._settings.a2a_artifact_retention_days
        return _made_at(turn.id) + timedelta(days=days) if days else None

    def _stored(self, receipt: Receipt) -> StoredFile:
        version = receipt.version
        address = content_address(self._settings.base_url, version.file_id, version.id)
        part = Part(url=address, filename=version.file_name, media_type=version.media_type)
        retention = receipt.retention_expires_at
        description = {
            "id": str(version.file_id),
            "versionId": str(version.id),
            "contentSha256": version.content_sha256.hex(),
            "byteSize": version.byte_size,
            "retentionExpiresAt": None if retention is None else _written(retention),
        }
        return StoredFile(part=part, description=description)


def _require_sharing(turn: Turn) -> None:
    """Raise PermissionDenied unless the service account may link to its files (docs/specification/a2a.md#artifacts)."""
    owner = turn.caller.owner
    if owner is None:
        return  # the upload raises the exact error
    held = turn.caller.permissions_on(organization_id=owner.organization_id, owner_id=owner.id)
    if Permission.FILE_UPDATE not in held:
        raise turn.caller.lacks(Permission.FILE_UPDATE, where=OVER_OWNER)


def file_artifact_uri(base_url: str) -> str:
    """Return the URI of the extension that describes a file artifact."""
    return f"{base_url}{EXTENSION}"


def _made_at(turn_id: UUID) -> datetime:
    """Return the creation time in a UUID of version 7 (RFC 9562)."""
    return datetime.fromtimestamp((turn_id.int >> 80) / 1000, tz=UTC)


def _written(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
