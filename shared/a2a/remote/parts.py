"""Store parts of an agent's artifact as files: bytes always, and text and data if they are large.

If a worker reads the same content of a task again, the content is still stored once. So a worker that takes over a turn
finds the files of the earlier worker (`stored_files.py`).
"""

from collections.abc import Sequence
from dataclasses import replace

from shared.a2a.behaviors.linked_files import LinkedFiles
from shared.a2a.behaviors.stored_files import NewFile, StoredFiles
from shared.a2a.exact_json import render
from shared.a2a.remote.errors import ResponseTooLarge
from shared.a2a.types import Artifact, Part
from shared.a2a.updates import Turn

MAXIMUM_FILES = 100
"""Limit for one artifact."""
_BINARY = "application/octet-stream"


def inline_bytes(parts: Sequence[Part]) -> int:
    """Return the number of bytes that parts contain themselves, without the files to which they link."""
    return sum(len(_content(part)) for part in parts)


class PartFiles:
    """Stores parts as files, for one turn."""

    def __init__(
        self, files: StoredFiles, linked: LinkedFiles, turn: Turn, *, inline_limit_bytes: int
    ) -> None:
        self._files = files
        self._linked = linked
        self._addresses: dict[str, str] = {}
        # Derive the file's id from the task's id and not from the turn's id, because a later turn of the task reads the
        # same artifacts again.
        self._turn = replace(turn, id=turn.task_id)
        self.inline_limit_bytes = inline_limit_bytes

    def without_bytes(self, artifact: Artifact) -> Artifact:
        """Return the artifact with files instead of bytes, and without secrets in its links to our files."""
        if all(part.raw is None and part.url is None for part in artifact.parts):
            return artifact
        chosen = [part.raw is not None for part in artifact.parts]
        referenced = artifact.model_copy(update={"parts": tuple(map(self._with_reference, artifact.parts))})
        return self._with_files(referenced, chosen)

    def shrunk(self, artifact: Artifact) -> Artifact:
        """Return the artifact with files instead of all its content."""
        return self._with_files(artifact, [part.url is None for part in artifact.parts])

    def _with_files(self, artifact: Artifact, chosen: Sequence[bool]) -> Artifact:
        if sum(chosen) > MAXIMUM_FILES:
            raise ResponseTooLarge(f"An artifact of the agent exceeds the limit of {MAXIMUM_FILES} files.")
        parts = [
            self._stored(artifact, part) if is_file else part
            for part, is_file in zip(artifact.parts, chosen, strict=True)
        ]
        if not any(chosen) or len(parts) > 1 or not parts[0].metadata:
            return artifact.model_copy(update={"parts": tuple(parts)})
        # If the artifact consists of one file, it gets the metadata of this file.
        metadata = {**parts[0].metadata, **(artifact.metadata or {})}
        added = (uri for uri in parts[0].metadata if uri in self._turn.active_extensions)
        extensions = tuple(dict.fromkeys((*artifact.extensions, *added)))
        return artifact.model_copy(
            update={"parts": tuple(parts), "metadata": metadata, "extensions": extensions}
        )

    def _with_reference(self, part: Part) -> Part:
        """Add a reference to a file of this service to which a part links. Return the part with the plain address."""
        if part.url is None:
            return part
        # Resolve each address once for a turn, because the worker reads the artifact at each poll.
        if part.url not in self._addresses:
            address = self._linked.refer_to(self._turn.caller, self._turn.task_id, part.url)
            self._addresses[part.url] = address or part.url
        return part.model_copy(update={"url": self._addresses[part.url]})

    def _stored(self, artifact: Artifact, part: Part) -> Part:
        new = NewFile(
            key=artifact.artifact_id,
            name=part.filename or artifact.name or "artifact",
            media_type=part.media_type or _media_type(part),
            content=_content(part),
        )
        stored = self._files.store(self._turn, new)
        metadata = {**self._files.describe(self._turn, stored), **(part.metadata or {})}
        return stored.part.model_copy(update={"metadata": metadata or None})


def _content(part: Part) -> bytes:
    if part.raw is not None:
        return part.raw
    if part.text is not None:
        return part.text.encode()
    return render(part.data).encode() if part.has_data else b""


def _media_type(part: Part) -> str:
    if part.text is not None:
        return "text/plain"
    return "application/json" if part.has_data else _BINARY
