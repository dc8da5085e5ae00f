"""Keep our log of a task equal to the agent's task, by the agent's events or by a comparison of the whole task.

`theirs` is an artifact at the agent, and `ours` is the same artifact in our log. The texts of both are joined before
the comparison, because the agent may split them in another way. Additions of the agent are appended, changes replace
the artifact, and no update is written twice. Text that is too large for an event is buffered until it is complete, and
then stored as a file.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from shared.a2a.remote.errors import ResponseTooLarge
from shared.a2a.remote.parts import PartFiles, inline_bytes
from shared.a2a.remote.response_parser import agents_message
from shared.a2a.tasks.artifacts import join
from shared.a2a.types import (
    Artifact,
    Message,
    MessageRole,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from shared.a2a.updates import ArtifactProduced, StatusChanged, Update

MAXIMUM_ARTIFACTS = 1000
QUESTION_SECONDS = 10.0
"""After this time, a task that still waits for input without a message counts as waiting for a new input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """The content of our log for a task.

    `message_ids` are the ids of the agent's messages. `has_questions` means that the agent has asked for input before.
    """

    state: TaskState = TaskState.SUBMITTED
    artifacts: Sequence[Artifact] = ()
    message_ids: Collection[str] = ()
    has_questions: bool = False


@dataclass(slots=True)
class _TrackedArtifact:
    """An artifact: the pieces at the agent, and the pieces in our log. Both are equal while `is_in_sync` is True."""

    theirs: list[Artifact] = field(default_factory=list)
    ours: list[Artifact] = field(default_factory=list)
    is_in_sync: bool = True
    size_bytes: int = 0


class LogCopy:
    """Turns events and tasks of an agent into the updates that our log lacks."""

    def __init__(self, files: PartFiles, logged: Logged, *, message_id: str) -> None:
        """Create a copy of our log. `message_id` is the id at the agent of the message that the agent answers."""
        self._files = files
        self._message_id = message_id
        self._known_message_ids = set(logged.message_ids)
        # Until the agent has read the reply, its task may still show the earlier question: ignore it for a while.
        self._trusts_question_at = time.monotonic() + (QUESTION_SECONDS if logged.has_questions else 0.0)
        self._state = logged.state
        self._tracked = {artifact.artifact_id: _logged(artifact) for artifact in logged.artifacts}
        self.is_settled = False
        self.updates = 0
        """The number of yielded updates, which shows whether the agent makes progress."""

    def apply_status(self, event: TaskStatusUpdateEvent) -> Iterator[Update]:
        """Yield the updates of a status event."""
        if event.status.state is TaskState.SUBMITTED and event.status.message is None:
            return  # our own log has a SUBMITTED status for each message
        # No event may follow a settling status, so yield the buffered artifacts first.
        if event.status.state.is_settled:
            yield from self._flush_artifacts()
        yield self._status(event.status, event)

    def apply_artifact(self, event: TaskArtifactUpdateEvent) -> Iterator[Update]:
        """Yield the updates of an artifact event."""
        piece = self._files.without_bytes(event.artifact)
        tracked = self._get(piece.artifact_id)
        is_continued = bool(event.append and tracked.theirs)
        if not is_continued:
            tracked.theirs, tracked.size_bytes = [], 0
            tracked.is_in_sync = True
        tracked.theirs.append(piece)
        tracked.size_bytes += inline_bytes(piece.parts)
        if tracked.is_in_sync and tracked.size_bytes <= self._files.inline_limit_bytes:
            tracked.ours = tracked.ours if is_continued else []
            tracked.ours.append(piece)
            self.updates += 1
            yield ArtifactProduced(
                artifact=piece,
                append=is_continued,
                last_chunk=bool(event.last_chunk),
                metadata=event.metadata,
            )
            return
        tracked.is_in_sync = False
        if event.last_chunk:
            yield from self._align(tracked, is_final=True)

    def reconcile(self, task: Task) -> Iterator[Update]:
        """Yield the updates for messages, artifacts and a status of the agent's task that are not in our log."""
        for message in _since(task, self._message_id):
            if message.role is MessageRole.AGENT and message.message_id not in self._known_message_ids:
                status = TaskStatus(state=TaskState.WORKING, message=message)
                yield self._status(status, None)
        for artifact in task.artifacts:
            tracked = self._get(artifact.artifact_id)
            tracked.theirs = [self._files.without_bytes(artifact)]
            tracked.size_bytes = inline_bytes(tracked.theirs[0].parts)
            yield from self._align(tracked, is_final=task.status.state.is_settled)
        if self._is_news(task.status):
            if task.status.state.is_settled:
                yield from self._flush_artifacts()
            yield self._status(task.status, None)

    def _is_news(self, status: TaskStatus) -> bool:
        if status.state is TaskState.SUBMITTED and status.message is None:
            return False  # our own log has a SUBMITTED status for each message
        if status.message is not None:
            is_known = status.message.message_id in self._known_message_ids
            # A known message is no news, but the status that ends the task may repeat a known message.
            return not is_known or status.state.is_terminal
        if status.state.is_interrupted and time.monotonic() < self._trusts_question_at:
            return False
        return status.state is not self._state

    def _status(self, status: TaskStatus, event: TaskStatusUpdateEvent | None) -> StatusChanged:
        message = agents_message(status.message) if status.message is not None else None
        if message is not None:
            self._known_message_ids.add(message.message_id)
        self._state = status.state
        self.is_settled = status.state.is_settled
        self.updates += 1
        return StatusChanged(
            state=status.state, message=message, metadata=event.metadata if event is not None else None
        )

    def _flush_artifacts(self) -> Iterator[Update]:
        """Yield the buffered artifacts, because the agent sends no further event for them."""
        for tracked in self._tracked.values():
            if not tracked.is_in_sync:
                yield from self._align(tracked, is_final=True)

    def _align(self, tracked: _TrackedArtifact, *, is_final: bool) -> Iterator[Update]:
        theirs = _normal(tracked.theirs)
        is_small = tracked.size_bytes <= self._files.inline_limit_bytes
        if not is_small:
            tracked.is_in_sync = False
            if not is_final:
                return
            theirs = self._files.shrunk(theirs)
        ours = _normal(tracked.ours) if tracked.ours else None
        update = _difference(ours, theirs, is_final=is_final)
        if update is not None:
            tracked.ours = [*tracked.ours, update.artifact] if update.append else [update.artifact]
            self.updates += 1
            yield update
        if is_small or is_final:
            tracked.theirs, tracked.is_in_sync = list(tracked.ours), True

    def _get(self, artifact_id: str) -> _TrackedArtifact:
        tracked = self._tracked.get(artifact_id)
        if tracked is None:
            if len(self._tracked) >= MAXIMUM_ARTIFACTS:
                raise ResponseTooLarge(
                    f"The agent exceeds the limit of {MAXIMUM_ARTIFACTS} artifacts for a task."
                )
            tracked = self._tracked[artifact_id] = _TrackedArtifact()
        return tracked


def _logged(artifact: Artifact) -> _TrackedArtifact:
    return _TrackedArtifact(theirs=[artifact], ours=[artifact], size_bytes=inline_bytes(artifact.parts))


def _since(task: Task, message_id: str) -> Sequence[Message]:
    """Return the messages of a task after our message, or no message if the history does not contain our message."""
    places = [place for place, update in enumerate(task.history) if update.message_id == message_id]
    return task.history[places[-1] + 1 :] if places else ()


def _normal(pieces: Sequence[Artifact]) -> Artifact:
    """Join pieces of an artifact. Text parts that continue each other are joined too, also within one piece."""
    single = [piece.model_copy(update={"parts": (part,)}) for piece in pieces for part in piece.parts]
    return join(single)


def _difference(ours: Artifact | None, theirs: Artifact, *, is_final: bool) -> ArtifactProduced | None:
    """Return the update that makes `ours` equal to `theirs`. Return None if both are equal or `theirs` is older."""
    if ours is None:
        return ArtifactProduced(artifact=theirs, last_chunk=is_final)
    if not _says(ours, theirs):
        return ArtifactProduced(artifact=theirs, last_chunk=is_final)
    rest = _rest(ours.parts, theirs.parts)
    if rest == ():
        return None
    if rest is not None:
        added = Artifact(artifact_id=theirs.artifact_id, parts=rest)
        return ArtifactProduced(artifact=added, append=True, last_chunk=is_final)
    if not is_final and _rest(theirs.parts, ours.parts) is not None:
        return None
    return ArtifactProduced(artifact=theirs, last_chunk=is_final)


def _says(ours: Artifact, theirs: Artifact) -> bool:
    """Return whether `ours` has the name, the description and the metadata of `theirs`."""
    known = ours.metadata or {}
    return (
        (theirs.name is None or theirs.name == ours.name)
        and (theirs.description is None or theirs.description == ours.description)
        and all(known.get(name) == value for name, value in (theirs.metadata or {}).items())
    )


def _rest(ours: Sequence[Part], theirs: Sequence[Part]) -> tuple[Part, ...] | None:
    """Return the parts of `theirs` that follow the parts of `ours`, or None if `theirs` does not begin with `ours`."""
    if len(ours) > len(theirs):
        return None
    *before, last = ours
    if [part.to_wire() for part in before] != [part.to_wire() for part in theirs[: len(before)]]:
        return None
    there = theirs[len(before)]
    following = tuple(theirs[len(ours) :])
    if last.to_wire() == there.to_wire():
        return following
    if last.text is None or there.text is None or not there.text.startswith(last.text):
        return None
    if last.model_copy(update={"text": there.text}).to_wire() != there.to_wire():
        return None
    return (there.model_copy(update={"text": there.text[len(last.text) :]}), *following)
