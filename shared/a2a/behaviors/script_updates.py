"""Build the updates of a script's steps as objects of the protocol.

Ids are derived from the turn, so a turn that is played again produces the same updates. For a part with a file, the
file is stored first, and the part contains a link to the file (`stored_files.py`).
"""

import random
from typing import Any
from uuid import uuid5

from shared.a2a.behaviors.script_context import ScriptContext
from shared.a2a.behaviors.script_schema import ArtifactTable, ContentTable, FileTable, PartTable
from shared.a2a.behaviors.stored_files import NewFile, StoredFiles
from shared.a2a.types import Artifact, Message, MessageRole, Part, TaskState
from shared.a2a.updates import ArtifactProduced, Replied, StatusChanged, Turn


class UpdateFactory:
    """Builds the updates of one turn."""

    def __init__(self, turn: Turn, files: StoredFiles) -> None:
        self._turn = turn
        self._files = files
        self._messages = 0

    def status(self, state: TaskState, content: ContentTable, context: ScriptContext) -> StatusChanged:
        """Return a status update, with a message if the step has content."""
        message = self._message(content, context) if content.text is not None or content.parts else None
        return StatusChanged(state=state, message=message, metadata=context.fill(content.event_metadata))

    def reply(self, content: ContentTable, context: ScriptContext) -> Replied:
        """Return a reply without a task."""
        return Replied(message=self._message(content, context))

    def artifact(self, table: ArtifactTable, context: ScriptContext, artifact_id: str) -> ArtifactProduced:
        """Return the event of an artifact step: a complete artifact, or more parts of an artifact with `append`."""
        parts = table.parts or [_only_part(table)]
        return ArtifactProduced(
            artifact=self._artifact(table, parts, context, artifact_id),
            append=table.append,
            last_chunk=table.last_chunk,
            metadata=context.fill(table.event_metadata),
        )

    def chunk(
        self, table: ArtifactTable, index: int, context: ScriptContext, artifact_id: str
    ) -> ArtifactProduced:
        """Return one chunk of an artifact. Only the first chunk has the artifact's name and description."""
        chunks = table.chunks or []
        # Later chunks only append parts, so do not repeat the description.
        described = table if index == 0 else ArtifactTable(text="")
        return ArtifactProduced(
            artifact=self._artifact(described, [chunks[index]], context, artifact_id),
            append=index > 0 or table.append,
            last_chunk=table.last_chunk and index == len(chunks) - 1,
            metadata=context.fill(table.event_metadata),
        )

    def echoed_artifact(self, context: ScriptContext, artifact_id: str) -> ArtifactProduced:
        """Return the received message as an artifact."""
        received = context.message
        return ArtifactProduced(
            artifact=Artifact(
                artifact_id=artifact_id,
                parts=received.parts,
                metadata=received.metadata,
                extensions=received.extensions,
            )
        )

    def echoed_status(self, state: TaskState, context: ScriptContext) -> StatusChanged:
        """Return the received message as the message of a status."""
        return StatusChanged(state=state, message=self._echo(context.message))

    def echoed_reply(self, context: ScriptContext) -> Replied:
        """Return the received message as a reply."""
        return Replied(message=self._echo(context.message))

    def _artifact(
        self, table: ArtifactTable, parts: list[PartTable], context: ScriptContext, artifact_id: str
    ) -> Artifact:
        parts_made = tuple(self._part(part, context, artifact_id) for part in parts)
        # If the artifact consists of one file, the artifact gets the file's description. With several parts, each part
        # has the description of its own file.
        described = parts_made[0].metadata or {} if len(parts_made) == 1 and parts[0].file is not None else {}
        metadata = {**described, **(context.fill(table.metadata) or {})}
        return Artifact(
            artifact_id=artifact_id,
            name=context.fill(table.name),
            description=context.fill(table.description),
            parts=parts_made,
            metadata=metadata if metadata or table.metadata is not None else None,
            extensions=tuple(dict.fromkeys((*table.extensions, *described))),
        )

    def _message(self, content: ContentTable, context: ScriptContext) -> Message:
        parts = content.parts or [PartTable(text=content.text or "")]
        return Message(
            message_id=self._next_message_id(),
            context_id=self._turn.context_id,
            task_id=str(self._turn.task_id),
            role=MessageRole.AGENT,
            parts=tuple(self._part(part, context, "message") for part in parts),
            metadata=context.fill(content.metadata),
            extensions=tuple(content.extensions),
        )

    def _echo(self, received: Message) -> Message:
        return Message(
            message_id=self._next_message_id(),
            context_id=self._turn.context_id,
            task_id=str(self._turn.task_id),
            role=MessageRole.AGENT,
            parts=received.parts,
            metadata=received.metadata,
            extensions=received.extensions,
        )

    def _part(self, table: PartTable, context: ScriptContext, key: str) -> Part:
        if table.file is not None:
            return self._stored(table, table.file, context, key)
        held: dict[str, Any] = {name: getattr(table, name) for name in table.model_fields_set - {"raw"}}
        part = context.fill(held)
        return Part.model_validate(part if table.raw is None else {**part, "raw": table.raw})

    def _stored(self, table: PartTable, file: FileTable, context: ScriptContext, key: str) -> Part:
        stored = self._files.store(self._turn, _new_file(file, context, key))
        described = self._files.describe(self._turn, stored)
        metadata = {**described, **(context.fill(table.metadata) or {})}
        return stored.part.model_copy(update={"metadata": metadata or None})

    def _next_message_id(self) -> str:
        self._messages += 1
        return str(uuid5(self._turn.id, f"message/{self._messages}"))


def _only_part(table: ArtifactTable) -> PartTable:
    names = table.given("text", "data", "raw", "url", "file", "filename", "media_type")
    return PartTable.model_construct(set(names), **{name: getattr(table, name) for name in names})


def _new_file(table: FileTable, context: ScriptContext, key: str) -> NewFile:
    if table.text is not None:
        content: bytes = context.fill(table.text).encode()
    elif table.base64 is not None:
        content = table.base64
    else:
        content = random.Random(table.size_bytes).randbytes(table.size_bytes or 0)  # noqa: S311 (no secret)
    return NewFile(key=key, name=context.fill(table.name), media_type=table.media_type, content=content)
