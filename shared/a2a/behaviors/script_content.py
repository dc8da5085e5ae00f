"""What a script's steps say, as the protocol's objects.

Ids are made from the turn, so that a turn that has to be played again says the same. Parts that hold a file store it
first and stand for it by a link (`stored_files.py`).
"""

import random
from typing import Any
from uuid import uuid5

from shared.a2a.agent_turns.updates import ArtifactProduced, Replied, StatusChanged, Turn
from shared.a2a.behaviors.script_scene import Scene
from shared.a2a.behaviors.script_schema import ArtifactTable, ContentTable, FileTable, PartTable
from shared.a2a.behaviors.stored_files import NewFile, StoredFiles
from shared.a2a.types import Artifact, Message, MessageRole, Part, TaskState


class Stage:
    """Makes the updates of one turn."""

    def __init__(self, turn: Turn, files: StoredFiles) -> None:
        self._turn = turn
        self._files = files
        self._messages = 0

    def status(self, state: TaskState, content: ContentTable, scene: Scene) -> StatusChanged:
        """Make a change of status, with what is said about it if anything is."""
        message = self._message(content, scene) if content.text is not None or content.parts else None
        return StatusChanged(state=state, message=message, metadata=scene.fill(content.event_metadata))

    def reply(self, content: ContentTable, scene: Scene) -> Replied:
        """Make an answer that is no task."""
        return Replied(message=self._message(content, scene))

    def artifact(self, table: ArtifactTable, scene: Scene, artifact_id: str) -> ArtifactProduced:
        """Make a whole artifact, or the one piece that the script sends of it."""
        parts = table.parts or [_only_part(table)]
        return ArtifactProduced(
            artifact=self._artifact(table, parts, scene, artifact_id),
            append=table.append,
            last_chunk=table.last_chunk,
            metadata=scene.fill(table.event_metadata),
        )

    def chunk(self, table: ArtifactTable, index: int, scene: Scene, artifact_id: str) -> ArtifactProduced:
        """Make one of an artifact's chunks; what describes the artifact comes with the first."""
        chunks = table.chunks or []
        described = table if index == 0 else ArtifactTable(text="")
        return ArtifactProduced(
            artifact=self._artifact(described, [chunks[index]], scene, artifact_id),
            append=index > 0 or table.append,
            last_chunk=table.last_chunk and index == len(chunks) - 1,
            metadata=scene.fill(table.event_metadata),
        )

    def echoed_artifact(self, scene: Scene, artifact_id: str) -> ArtifactProduced:
        """Make an artifact of what was received."""
        heard = scene.message
        return ArtifactProduced(
            artifact=Artifact(
                artifact_id=artifact_id,
                parts=heard.parts,
                metadata=heard.metadata,
                extensions=heard.extensions,
            )
        )

    def echoed_status(self, state: TaskState, scene: Scene) -> StatusChanged:
        """Echo what was received."""
        return StatusChanged(state=state, message=self._echo(scene.message))

    def echoed_reply(self, scene: Scene) -> Replied:
        """Answer what was received."""
        return Replied(message=self._echo(scene.message))

    def _artifact(
        self, table: ArtifactTable, parts: list[PartTable], scene: Scene, artifact_id: str
    ) -> Artifact:
        made = tuple(self._part(part, scene, artifact_id) for part in parts)
        # An artifact that is one file is described as that file; of several parts each file describes itself.
        described = made[0].metadata or {} if len(made) == 1 and parts[0].file is not None else {}
        metadata = {**described, **(scene.fill(table.metadata) or {})}
        return Artifact(
            artifact_id=artifact_id,
            name=scene.fill(table.name),
            description=scene.fill(table.description),
            parts=made,
            metadata=metadata if metadata or table.metadata is not None else None,
            extensions=tuple(dict.fromkeys((*table.extensions, *described))),
        )

    def _message(self, content: ContentTable, scene: Scene) -> Message:
        parts = content.parts or [PartTable(text=content.text or "")]
        return Message(
            message_id=self._next_message_id(),
            context_id=self._turn.context_id,
            task_id=str(self._turn.task_id),
            role=MessageRole.AGENT,
            parts=tuple(self._part(part, scene, "message") for part in parts),
            metadata=scene.fill(content.metadata),
            extensions=tuple(content.extensions),
        )

    def _echo(self, heard: Message) -> Message:
        return Message(
            message_id=self._next_message_id(),
            context_id=self._turn.context_id,
            task_id=str(self._turn.task_id),
            role=MessageRole.AGENT,
            parts=heard.parts,
            metadata=heard.metadata,
            extensions=heard.extensions,
        )

    def _part(self, table: PartTable, scene: Scene, key: str) -> Part:
        if table.file is not None:
            return self._stored(table, table.file, scene, key)
        held: dict[str, Any] = {name: getattr(table, name) for name in table.model_fields_set - {"raw"}}
        part = scene.fill(held)
        return Part.model_validate(part if table.raw is None else {**part, "raw": table.raw})

    def _stored(self, table: PartTable, file: FileTable, scene: Scene, key: str) -> Part:
        stored = self._files.store(self._turn, _new_file(file, scene, key))
        described = self._files.describe(self._turn, stored)
        metadata = {**described, **(scene.fill(table.metadata) or {})}
        return stored.part.model_copy(update={"metadata": metadata or None})

    def _next_message_id(self) -> str:
        self._messages += 1
        return str(uuid5(self._turn.id, f"message/{self._messages}"))


def _only_part(table: ArtifactTable) -> PartTable:
    names = table.given("text", "data", "raw", "url", "file", "filename", "media_type")
    return PartTable.model_construct(set(names), **{name: getattr(table, name) for name in names})


def _new_file(table: FileTable, scene: Scene, key: str) -> NewFile:
    if table.text is not None:
        content: bytes = scene.fill(table.text).encode()
    elif table.base64 is not None:
        content = table.base64
    else:
        content = random.Random(table.size_bytes).randbytes(table.size_bytes or 0)  # noqa: S311 (no secret)
    return NewFile(key=key, name=scene.fill(table.name), media_type=table.media_type, content=content)
