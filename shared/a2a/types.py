"""The objects of A2A 1.0 as they travel in HTTP+JSON: our own shapes, never protobuf's.

Liberal in what they read (camelCase or snake_case, `null` for absent, unknown members ignored), strict in what they
write: camelCase, nothing unknown, no nulls, no empty lists. `metadata` and data parts are plain JSON values that pass
through untouched (`exact_json.py`). Write them with `to_wire` and `render`, not with pydantic, which knows neither
rule. Source: the protocol's definition 1.0.1, sections 4 and 5.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainSerializer,
    StrictBool,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

Metadata = dict[str, Any]


class Role(StrEnum):
    """Who speaks."""

    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class TaskState(StrEnum):
    """Where a task is."""

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
        """Whether nothing follows."""
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


def _decode_base64(value: object) -> object:
    """Read base64 of either alphabet, with or without padding, as protobuf's JSON allows."""
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(
            value.rstrip("=") + "=" * (-len(value.rstrip("=")) % 4), _alphabet(value), validate=True
        )
    except (binascii.Error, ValueError):
        raise PydanticCustomError("base64", "must be base64") from None


def _alphabet(value: str) -> bytes | None:
    return b"-_" if "-" in value or "_" in value else None


def _read_instant(value: object) -> object:
    if isinstance(value, str):
        with suppress(ValueError, OverflowError):  # the first and the last day have times that UTC has not
            read = datetime.fromisoformat(value)
            if read.tzinfo is not None and "T" in value:
                return read.astimezone(UTC)
        raise PydanticCustomError(
            "instant", "must be an ISO 8601 time with its offset, such as 2030-01-31T12:00:00Z"
        )
    return value


def render_instant(value: datetime) -> str:
    """Write a time as ISO 8601 UTC with milliseconds."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _encode_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


Identifier = Annotated[str, StringConstraints(min_length=1)]
Base64 = Annotated[
    bytes,
    BeforeValidator(_decode_base64),
    PlainSerializer(_encode_base64),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]
Instant = Annotated[
    datetime, BeforeValidator(_read_instant), WithJsonSchema({"type": "string", "format": "date-time"})
]
_ABSENT_AS_EMPTY = BeforeValidator(lambda value: () if value is None else value)
# Lists of others are read up to their first mistake: to name each costs a hundred times what it cost to send it.
Uris = Annotated[tuple[str, ...], FailFast(), _ABSENT_AS_EMPTY]


class A2A(BaseModel):
    """An object of the protocol."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, protected_namespaces=()
    )

    def to_wire(self) -> dict[str, Any]:
        """Give the JSON object, for `exact_json.render`."""
        members = ((name, self.wire_name(name), getattr(self, name)) for name in type(self).model_fields)
        return {key: _wired(value) for name, key, value in members if self.is_present(name, value)}

    def is_present(self, name: str, value: object) -> bool:
        """Whether a field is written at all."""
        return value is not None and (value != () or self._is_required(name))

    @classmethod
    def wire_name(cls, name: str) -> str:
        """Give a field's name in JSON."""
        return cls.model_fields[name].alias or name

    @classmethod
    def _is_required(cls, name: str) -> bool:
        return cls.model_fields[name].is_required()


class Part(A2A):
    """A piece of content: exactly one of text, bytes, a link, or any JSON value (null among them)."""

    text: str | None = None
    raw: Base64 | None = None
    url: Annotated[str, StringConstraints(min_length=1)] | None = None
    data: Any = None
    metadata: Metadata | None = None
    filename: str | None = None
    media_type: str | None = None

    @model_validator(mode="after")
    def _hold_one(self) -> Self:
        held = [name for name in ("text", "raw", "url") if getattr(self, name) is not None]
        if self.has_data:
            held.append("data")
        if len(held) != 1:
            raise PydanticCustomError("part", "must hold exactly one of text, raw, url and data")
        return self

    @property
    def has_data(self) -> bool:
        """Whether this is a data part; its value may be null."""
        return "data" in self.model_fields_set

    def is_present(self, name: str, value: object) -> bool:
        """Whether a field is written at all; null is a value of data."""
        return self.has_data if name == "data" else A2A.is_present(self, name, value)


Parts = Annotated[tuple[Part, ...], FailFast(), Field(min_length=1)]


class Message(A2A):
    """What one side says."""

    message_id: Identifier
    context_id: str | None = None
    task_id: str | None = None
    role: Role
    parts: Parts
    metadata: Metadata | None = None
    extensions: Uris = ()
    reference_task_ids: Uris = ()


class Artifact(A2A):
    """What an agent made."""

    artifact_id: Identifier
    name: str | None = None
    description: str | None = None
    parts: Parts
    metadata: Metadata | None = None
    extensions: Uris = ()


class TaskStatus(A2A):
    """Where a task is, since when, and what the agent says about it."""

    state: TaskState
    message: Message | None = None
    timestamp: Instant | None = None


class Task(A2A):
    """A task as its caller sees it."""

    id: Identifier
    context_id: str | None = None
    status: TaskStatus
    artifacts: Annotated[tuple[Artifact, ...], FailFast(), _ABSENT_AS_EMPTY] = ()
    history: Annotated[tuple[Message, ...], FailFast(), _ABSENT_AS_EMPTY] = ()
    metadata: Metadata | None = None


class TaskStatusUpdateEvent(A2A):
    """A task changed its status."""

    task_id: Identifier
    context_id: Identifier
    status: TaskStatus
    metadata: Metadata | None = None


class TaskArtifactUpdateEvent(A2A):
    """A task made an artifact, or more of one (`append`)."""

    task_id: Identifier
    context_id: Identifier
    artifact: Artifact
    append: StrictBool | None = None
    last_chunk: StrictBool | None = None
    metadata: Metadata | None = None


class StreamResponse(A2A):
    """One event of a stream or a push notification: exactly one of its members."""

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None


class SendMessageResponse(A2A):
    """What a send is answered with: a task, or just a message."""

    task: Task | None = None
    message: Message | None = None


class AuthenticationInfo(A2A):
    """How a push notification proves where it comes from."""

    scheme: Identifier
    credentials: str | None = None


class TaskPushNotificationConfig(A2A):
    """Where updates of a task are posted to."""

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
    """How the client wants to be answered."""

    accepted_output_modes: Uris = ()
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: Annotated[int, Field(ge=0, le=(1 << 31) - 1)] | None = None
    return_immediately: StrictBool | None = None


class SendMessageRequest(A2A):
    """The body of a send."""

    tenant: str | None = None
    message: Message
    configuration: SendMessageConfiguration | None = None
    metadata: Metadata | None = None


class CancelTaskRequest(A2A):
    """The body of a cancellation, which may be absent."""

    tenant: str | None = None
    id: str | None = None
    metadata: Metadata | None = None


class ListTasksResponse(A2A):
    """A page of tasks; all four members are always there."""

    tasks: tuple[Task, ...]
    next_page_token: str
    page_size: int
    total_size: int


class AgentInterface(A2A):
    """An address at which an agent is spoken to."""

    url: str
    protocol_binding: str
    tenant: str | None = None
    protocol_version: str


class AgentProvider(A2A):
    """Who runs an agent."""

    url: str
    organization: str


class AgentExtension(A2A):
    """An extension that an agent declares."""

    uri: Identifier
    description: str | None = None
    required: StrictBool | None = None
    params: Metadata | None = None


class AgentCapabilities(A2A):
    """What an agent can do beyond answering."""

    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[AgentExtension, ...] = ()
    extended_agent_card: bool | None = None


class AgentSkill(A2A):
    """Something an agent is good at."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


class AgentCard(A2A):
    """How an agent introduces itself."""

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


def _wired(value: object) -> Any:
    if isinstance(value, A2A):
        return value.to_wire()
    if isinstance(value, tuple):
        return [_wired(item) for item in value]
    if isinstance(value, Mapping):
        return value
    if isinstance(value, bytes):
        return _encode_base64(value)
    if isinstance(value, datetime):
        return render_instant(value)
    return value.value if isinstance(value, Enum) else value
