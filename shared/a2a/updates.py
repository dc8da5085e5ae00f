"""The interface between the protocol and behaviors: the turn that a behavior gets, and the updates that it yields.

A **turn** is one message of a client and the agent's work on this message. A task has several turns if the agent asks
its client questions. The worker appends each update to the task's log (`agent_turns/task_log.py`). Streams, polls and
push notifications read this log.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from shared.a2a.types import Artifact, Message, TaskState
from shared.identity.access.callers import Caller
from shared.identity.tokens.usage_attribution import Attribution


class BehaviorKind(StrEnum):
    """How a behavior produces its replies."""

    MODEL = "model"
    SCRIPT = "script"
    REMOTE = "remote"

    @property
    def can_resume(self) -> bool:
        """Whether a turn that has written updates may run again without contradicting these updates."""
        return self is not BehaviorKind.MODEL

    @property
    def reads_log(self) -> bool:
        """Whether a turn that runs again yields only the updates that its log lacks, and does not repeat the others."""
        return self is BehaviorKind.REMOTE


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredExtension:
    """An extension that a behavior declares on its agent's card.

    `requires` names the extensions on which this extension depends. The card names them in the description.
    """

    uri: str
    description: str | None = None
    required: bool = False
    params: Mapping[str, Any] | None = None
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviorSettings:
    """A row of `behaviors`: a named way in which an agent works, shown on its card as a skill.

    A `MODEL` behavior has `model` and `instructions`. A `SCRIPT` behavior has `script`, the YAML text, or follows the
    file of the setting `A2A_SCRIPT`. A `REMOTE` behavior forwards messages to the endpoint of its deployment.
    """

    id: UUID
    deployment_id: UUID
    name: str
    kind: BehaviorKind
    description: str
    model: str | None
    instructions: str
    script: str | None
    extensions: tuple[DeclaredExtension, ...]
    tags: tuple[str, ...]
    examples: tuple[str, ...]
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]
    is_default: bool
    updated_at: datetime


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message to answer.

    `caller` is the identity with which the agent works: the executor is the deployment's service account, and the owner
    owns the files that the agent stores. `attribution` has the same values for an agent on another server; it is signed
    before it is sent. `history` reads the earlier messages of the context, oldest first. `is_first` means that the
    message created its task. A behavior that writes rows besides its updates checks `lease_id` in each write.
    `is_cancelled` returns whether the turn must end at once (`agent_turns/heartbeats.py`).
    """

    id: UUID
    lease_id: UUID
    task_id: UUID
    context_id: str
    message: Message
    is_first: bool
    history: Callable[[], tuple[Message, ...]] = field(repr=False)
    request_metadata: Mapping[str, Any]
    accepted_output_modes: tuple[str, ...]
    active_extensions: frozenset[str]
    organization_id: UUID
    deployment_id: UUID
    behavior: BehaviorSettings
    caller: Caller
    attribution: Attribution
    is_cancelled: Callable[[], bool] = field(default=_never, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChanged:
    """The task has a new state; the log adds the time. A terminal or interrupted state ends the turn."""

    state: TaskState
    message: Message | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactProduced:
    """An artifact, or with `append` more parts of the artifact with the same id."""

    artifact: Artifact
    append: bool = False
    last_chunk: bool = True
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The complete reply is one message. If this is the turn's only update, the client gets no task."""

    message: Message


Update: TypeAlias = StatusChanged | ArtifactProduced | Replied


def settles(update: Update) -> bool:
    """Return whether an update ends its turn, so that no further update may follow."""
    return isinstance(update, Replied) or (isinstance(update, StatusChanged) and update.state.is_settled)


def as_status(update: Update) -> Update:
    """Return a reply as the status that completes a visible task. Return any other update unchanged."""
    if not isinstance(update, Replied):
        return update
    return StatusChanged(state=TaskState.COMPLETED, message=update.message)


class Behavior(Protocol):
    """Runs turns."""

    def run(self, turn: Turn) -> Iterator[Update]:
        """Yield updates until the turn is settled. An exception fails the task."""
        ...
