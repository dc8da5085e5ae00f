"""Write the outputs of a skill as updates of a task."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from a2a.server.tasks import TaskUpdater
from a2a.types import Part, TaskState
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from quartermaster.agents.artifact_storage import guess_media_type, is_stored, raw_part, store_artifact
from quartermaster.agents.connection import Connection
from quartermaster.agents.outputs import Artifact, Ask, Status

MAX_INLINE_BYTES = 1 << 20
"""The maximum size of a part in the message. Larger text and JSON values are stored as files."""


class TurnWriter:
    """Writes the outputs of one turn, which is one call of a skill, in order."""

    def __init__(
        self, updater: TaskUpdater, connection: Connection, *, title: str, active: Collection[str]
    ) -> None:
        self._updater = updater
        self._connection = connection
        self._title = title
        self._active = active
        self._text_id: str | None = None

    async def write(self, output: Any) -> bool:
        """Write an output. Return whether the output ends the turn. Raises TypeError if the value is not an output."""
        if isinstance(output, str):
            await self._write_text(output)
        elif isinstance(output, Ask):
            await self._updater.requires_input(self._message(output.text))
            return True
        elif isinstance(output, Status):
            await self._updater.update_status(TaskState.TASK_STATE_WORKING, self._message(output.text))
        elif output is not None:
            await self._write_artifact(to_artifact(output, self._title))
        return False

    async def fail(self, sentence: str) -> None:
        """Set the task's state to failed, with a message."""
        await self._updater.failed(self._message(sentence))

    def _message(self, text: str) -> Any:
        return self._updater.new_agent_message([Part(text=text)])

    async def _write_text(self, text: str) -> None:
        if not text:
            return
        is_first = self._text_id is None
        self._text_id = self._text_id or str(uuid4())
        await self._updater.add_artifact(
            [Part(text=text, media_type="text/plain")],
            artifact_id=self._text_id,
            name=self._title,
            # Append all text of a turn to one artifact, so that clients show the text as one reply.
            append=not is_first,
        )

    async def _write_artifact(self, artifact: Artifact) -> None:
        data = {uri: dict(found) for uri, found in artifact.extensions.items() if uri in self._active}
        part = _inline(artifact)
        if not self._connection.is_configured:
            part = part or raw_part(artifact)  # in development: without a service, send the content itself
        elif part is None or part.ByteSize() > MAX_INLINE_BYTES:
            stored = await store_artifact(self._connection.async_client, artifact)
            part = stored.part
            if self._connection.file_artifact_uri in self._active:
                data[self._connection.file_artifact_uri] = stored.description
        await self._updater.add_artifact(
            [part], name=artifact.name, metadata=data or None, extensions=list(data) or None, last_chunk=True
        )


def to_artifact(output: Any, title: str) -> Artifact:
    """Return an output as an artifact. Raises TypeError if the value cannot be converted."""
    if isinstance(output, Artifact):
        return output
    if isinstance(output, Path):
        return Artifact(output, output.name)
    if isinstance(output, (Mapping, list)):
        return Artifact(output, title, "application/json")
    raise TypeError(
        f"A skill cannot return {type(output).__name__}; bytes need a name: Artifact(content, name)."
    )


def _inline(artifact: Artifact) -> Part | None:
    """Return a message part with the artifact's content, or None if the artifact is stored as a file."""
    if is_stored(artifact):
        return None
    if isinstance(artifact.content, str):
        return Part(text=artifact.content, filename=artifact.name, media_type=guess_media_type(artifact))
    # Convert through JSON: protobuf accepts no tuples, and json raises a clear error if a value is not JSON.
    value = ParseDict(json.loads(json.dumps(artifact.content)), Value())
    return Part(data=value, filename=artifact.name, media_type=artifact.media_type or "application/json")
