"""Store an artifact as a file of the service, and create the message part with its link."""

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
"""The maximum lifetime of a link, because a task may be read long after it ended."""


@dataclass(frozen=True)
class StoredArtifact:
    """A part with a link to the file, and the file's description for the extension `file-artifact`."""

    part: Part
    description: dict[str, Any]


def is_stored(artifact: Artifact) -> bool:
    """Return whether an artifact is sent as a stored file."""
    return isinstance(artifact.content, (bytes, Path)) or artifact.file is not None


async def store_artifact(client: AsyncClient, artifact: Artifact) -> StoredArtifact:
    """Upload an artifact, with the owner and payer of the context. Raises the errors of `files.upload`."""
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
    """Return a part that contains an artifact's content."""
    content = _content(artifact)
    raw = content.read_bytes() if isinstance(content, Path) else content
    return Part(raw=raw, filename=artifact.name, media_type=guess_media_type(artifact))


def guess_media_type(artifact: Artifact) -> str:
    """Return the artifact's media type, by default the one of its name's suffix."""
    return artifact.media_type or mimetypes.guess_type(artifact.name)[0] or "application/octet-stream"


def _content(artifact: Artifact) -> bytes | Path:
    if isinstance(artifact.content, (bytes, Path)):
        return artifact.content
    if isinstance(artifact.content, str):
        return artifact.content.encode()
    return json.dumps(artifact.content, ensure_ascii=False).encode()


def _deadline(artifact: Artifact) -> datetime | None:
    # FileAction without a time means for ever; only without an action is there a default.
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
