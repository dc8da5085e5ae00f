"""Store an artifact as a file of the service, and create a message part with a link to that file."""

from __future__ import annotations

import json
import mimetypes
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from a2a.types import Part

from quartermaster import AsyncClient
from quartermaster._wire import write_timestamp
from quartermaster.agents.outputs import Artifact
from quartermaster.resources import UploadedFile

DEFAULT_RETENTION = timedelta(days=30)
LINK_MINUTES = 1440
"""The lifetime of a link is the maximum, because a client may read a task long after the task ended."""


@dataclass(frozen=True)
class StoredArtifact:
    """A message part with a link to a stored file, and the file's description for the extension `file-artifact`."""

    part: Part
    description: dict[str, Any]


def is_stored(artifact: Artifact) -> bool:
    """Return whether an artifact is sent as a stored file."""
    return isinstance(artifact.content, (bytes, Path)) or artifact.file is not None


async def store_artifact(client: AsyncClient, artifact: Artifact) -> StoredArtifact:
    """Upload an artifact for the context's owner and payer. Raises the same errors as `files.upload`."""
    uploaded = await client.files.upload(
        _content(artifact),
        file_name=artifact.name,
        media_type=guess_media_type(artifact),
        retention_expires_at=_deadline(artifact),
    )
    link = await client.files.create_read_link(uploaded.id, uploaded.version_id, ttl_minutes=LINK_MINUTES)
    part = Part(url=link.url, filename=uploaded.metadata.file_name, media_type=uploaded.metadata.media_type)
    return StoredArtifact(part, _describe(uploaded))


def raw_part(artifact: Artifact) -> Part:
    """Return a message part that contains an artifact's content."""
    content = _content(artifact)
    raw = content.read_bytes() if isinstance(content, Path) else content
    return Part(raw=raw, filename=artifact.name, media_type=guess_media_type(artifact))


def guess_media_type(artifact: Artifact) -> str:
    """Return the artifact's media type. If the artifact has none, guess the type from the suffix of its name."""
    return artifact.media_type or mimetypes.guess_type(artifact.name)[0] or "application/octet-stream"


def _content(artifact: Artifact) -> bytes | Path:
    if isinstance(artifact.content, (bytes, Path)):
        return artifact.content
    if isinstance(artifact.content, str):
        return artifact.content.encode()
    return json.dumps(artifact.content, ensure_ascii=False).encode()


def _deadline(artifact: Artifact) -> datetime | None:
    # A FileAction without a time means that the file never expires. The default applies only without a FileAction.
    if artifact.file is not None:
        return artifact.file.retention_expires_at
    return datetime.now(timezone.utc) + DEFAULT_RETENTION


def _describe(uploaded: UploadedFile) -> dict[str, Any]:
    metadata = uploaded.metadata
    deadline = metadata.retention_expires_at
    return {
        "id": str(uploaded.id),
        "versionId": str(uploaded.version_id),
        "contentSha256": metadata.content_sha256,
        "byteSize": metadata.byte_size,
        "retentionExpiresAt": None if deadline is None else write_timestamp(deadline),
    }
