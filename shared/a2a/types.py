"""The objects of A2A 1.0 in the form of the HTTP+JSON binding: pydantic models, without protobuf.

`wire.py` defines how these objects are read and written. Source: the protocol definition 1.0.1, sections 4 and 5.
"""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, FailFast, Field, StrictBool, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from shared.a2a.wire import A2A, ABSENT_AS_EMPTY, Base64, Identifier, Instant, Metadata, Uris


class MessageRole(StrEnum):
    """The author of a message."""

    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class TaskState(StrEnum):
    """The state of a task."""

    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    REJECTED = "TASK_STATE_REJECTED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"

    @property
    def is_terminal(self) -> bool:
        """Whether the task has ended."""
        return self in _TERMINAL

    @property
    def is_interrupted(self) -> bool:
        """Whether the task waits for its client."""
        return self in (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)

    @property
    def is_settled(self) -> bool:
        """Whether clients that wait for the agent need not wait any longer."""
        return self.is_terminal or self.is_interrupted


_TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})


class Part(A2A):
    """A piece of content: exactly one of text, bytes, a link, or any JSON value (also null)."""

    text: str | None = None
    raw: Base64 | None = None
    url: Annotated[str, StringConstraints(min_length=1)] | None = None
    data: Any = None
    metadata: Metadata | None = None
    filename: str | None = None
    media_type: str | None = None

    @model_validator(mode="after")
    def _require_one_content(self) -> Self:
        held = [name for name in ("text", "raw", "url") if getattr(self, name) is not None]
        # Do not compare `data` with None: null is a valid value of a data part.
        if self.has_data:
            held.append("data")
        # The protocol defines a `oneof`, which cannot carry two contents.
        if len(held) != 1:
            raise PydanticCustomError("part", "must hold exactly one of text, raw, url and data")
        return self

    @property
    def has_data(self) -> bool:
        """Whether this is a data part; its value may be null."""
        return "data" in self.model_fields_set

    def is_present(self, name: str, value: object) -> bool:
        """Return whether a field is written. A `data` field is written even if its value is null."""
        return self.has_data if name == "data" else A2A.is_present(self, name, value)


Parts = Annotated[tuple[Part, ...], FailFast(), Field(min_length=1)]


UnsetId = Annotated[str | None, BeforeValidator(lambda value: None if value == "" else value)]
"""An id that may be absent; protobuf writes an absent one as the empty string."""


class Message(A2A):
    """A message of the client or the agent."""

    message_id: Identifier
    context_id: UnsetId = None
    task_id: UnsetId = None
    role: MessageRole
    parts: Parts
    metadata: Metadata | None = None
    extensions: Uris = ()
    reference_task_ids: Uris = ()


class Artifact(A2A):
    """A result of an agent."""

    artifact_id: Identifier
    name: str | None = None
    description: str | None = None
    parts: Parts
    metadata: Metadata | None = None
    extensions: Uris = ()


class TaskStatus(A2A):
    """The state of a task, its time, and a message of the agent about it."""

    state: TaskState
    message: Message | None = None
    timestamp: Instant | None = None


class Task(A2A):
    """A task as its caller sees it."""

    id: Identifier
    context_id: str | None = None
    status: TaskStatus
    artifacts: Annotated[tuple[Artifact, ...], FailFast(), ABSENT_AS_EMPTY] = ()
    history: Annotated[tuple[Message, ...], FailFast(), ABSENT_AS_EMPTY] = ()
    metadata: Metadata | None = None


class TaskStatusUpdateEvent(A2A):
    """A change of a task's status."""

    task_id: Identifier
    context_id: Identifier
    status: TaskStatus
    metadata: Metadata | None = None


class TaskArtifactUpdateEvent(A2A):
    """A new artifact of a task, or with `append` more content of an earlier artifact."""

    task_id: Identifier
    context_id: Identifier
    artifact: Artifact
    # Strict here and below: pydantic would also accept 1, "yes" and "on" as true.
    append: StrictBool | None = None
    last_chunk: StrictBool | None = None
    metadata: Metadata | None = None


class StreamResponse(A2A):
    """One event of a stream or a push notification. An event has exactly one of these members."""

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None


class SendMessageResponse(A2A):
    """The response to a message: a task or a message."""

    task: Task | None = None
    message: Message | None = None


class AuthenticationInfo(A2A):
    """The scheme and the credentials in the `Authorization` header of push notifications."""

    scheme: Identifier
    credentials: str | None = None


class TaskPushNotificationConfig(A2A):
    """A push notification configuration: the URL to which updates of a task are posted, and its credentials."""

    tenant: str | None = None
    id: str | None = None
    task_id: str | None = None
    url: Identifier
    token: str | None = None
    authentication: AuthenticationInfo | None = None


class ListTaskPushNotificationConfigsResponse(A2A):
    """A page of a task's push notification configurations."""

    configs: tuple[TaskPushNotificationConfig, ...]
    next_page_token: str


class SendMessageConfiguration(A2A):
    """The client's wishes for the response to its message."""

    accepted_output_modes: Uris = ()
    task_push_notification_config: TaskPushNotificationConfig | None = None
    # The protocol defines an int32.
    history_length: Annotated[int, Field(ge=0, le=(1 << 31) - 1)] | None = None
    return_immediately: StrictBool | None = None


class SendMessageRequest(A2A):
    """The body of a request that sends a message."""

    tenant: str | None = None
    message: Message
    configuration: SendMessageConfiguration | None = None
    metadata: Metadata | None = None


class Empty(A2A):
    """A response without members."""


class CancelTaskRequest(A2A):
    """The body of a cancellation, which may be absent."""

    tenant: str | None = None
    id: str | None = None
    metadata: Metadata | None = None


class ListTasksResponse(A2A):
    """A page of tasks; all four members are always present."""

    tasks: tuple[Task, ...]
    next_page_token: str
    page_size: int
    total_size: int


class AgentInterface(A2A):
    """An address and a binding for messages to an agent."""

    url: str
    protocol_binding: str
    tenant: str | None = None
    protocol_version: str


class AgentProvider(A2A):
    """The organization that runs an agent."""

    url: str
    organization: str


class AgentExtension(A2A):
    """An extension that an agent declares."""

    uri: Identifier
    description: str | None = None
    required: StrictBool | None = None
    params: Metadata | None = None


class AgentCapabilities(A2A):
    """Optional features of an agent."""

    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[AgentExtension, ...] = ()
    extended_agent_card: bool | None = None


class AgentSkill(A2A):
    """A skill of an agent."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


class AgentCard(A2A):
    """An agent's description of itself."""

    name: str
    description: str
    supported_interfaces: tuple[AgentInterface, ...]
    provider: AgentProvider | None = None
    version: str
    documentation_url: str | None = None
    capabilities: AgentCapabilities
    security_schemes: Metadata | None = None
    security_requirements: tuple[Metadata, ...] = ()
    default_input_modes: tuple[str, ...]
    default_output_modes: tuple[str, ...]
    skills: tuple[AgentSkill, ...]
    icon_url: str | None = None
