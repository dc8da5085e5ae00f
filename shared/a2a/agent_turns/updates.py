"""What the protocol hands to a behavior, and what a behavior answers: the seam between the two halves of this domain.

A **turn** is one message of a client and all that the agent does about it; a task has several when the agent asked
back. A behavior yields updates; the worker writes each into the task's log (`tasks/log.py`), which every stream, poll
and push notification reads.
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
    """How a behavior makes its answers."""

    MODEL = "model"
    SCRIPT = "script"
    REMOTE = "remote"

    @property
    def can_resume(self) -> bool:
        """Whether a turn may be run again after it has said something, without saying anything else."""
        return self is not BehaviorKind.MODEL

    @property
    def reads_log(self) -> bool:
        """Whether a turn that is run again says only what its log lacks, instead of the same once more."""
        return self is BehaviorKind.REMOTE


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredExtension:
    """An extension that a behavior declares on its agent's card.

    `requires` names extensions that must be activated with it; the card names them in its description.
    """

    uri: str
    description: str | None = None
    required: bool = False
    params: Mapping[str, Any] | None = None
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviorSettings:
    """A row of `behaviors`: a named way a daemon works, shown on the card as a skill.

    A `MODEL` behavior has `model` and `instructions`; a `SCRIPT` behavior has `script`, the YAML text itself, or none
    and follows the file of the setting `A2A_SCRIPT`; a `REMOTE` behavior sends messages on to the endpoint of its
    deployment.
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

    `caller` is the call as the agent makes it: executor is the deployment's live daemon, owner who owns what the
    agent writes. `attribution` is the same as a statement to sign, for an agent that runs elsewhere. `history` reads
    what was said in this context before `message`, oldest first. `is_first` says that its task begins with the
    message. `lease_id` fences what a behavior writes besides its updates. `is_cancelled` says that the turn is to end
    at once (`heartbeats.py`). `attempt` is more than 1 when an earlier worker died; unless the behavior goes on by
    itself, the log drops the updates it has already.
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
    """The task is in a new state; the log adds the time. A terminal or interrupted state ends the turn."""

    state: TaskState
    message: Message | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactProduced:
    """An artifact, or with `append` more parts of the one of the same id."""

    artifact: Artifact
    append: bool = False
    last_chunk: bool = True
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The whole answer is this message; as a turn's first and only update it makes no task that the client sees."""

    message: Message


Update: TypeAlias = StatusChanged | ArtifactProduced | Replied


def settles(update: Update) -> bool:
    """Tell whether nothing may follow an update: it ends the turn."""
    return isinstance(update, Replied) or (isinstance(update, StatusChanged) and update.state.is_settled)


def as_status(update: Update) -> Update:
    """Say by a status how a task ends that its client sees."""
    if not isinstance(update, Replied):
        return update
    return StatusChanged(state=TaskState.COMPLETED, message=update.message)


class Behavior(Protocol):
    """Answers turns."""

    def run(self, turn: Turn) -> Iterator[Update]:
        """Yield updates until the turn is settled; what is raised fails the task."""
        ...
