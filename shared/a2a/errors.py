"""The protocol's errors by their reasons (protocol definition 3.3.2 and 5.4), and the two of our own.

    A2AError
    ├── TaskNotFound, TaskNotCancelable, UnsupportedOperation …   the protocol's; `reason` travels as it stands
    ├── InvalidParams, InvalidRequest                             what the published client knows besides
    └── AgentNotFound, IdempotencyKeyReused …                     ours

Their kinds are those of the service; the statuses that the binding prescribes stand in
`web/error_responses/a2a_errors.py`.
"""

from shared.errors import DomainError, Kind


class A2AError(DomainError):
    """The agent could not do this."""

    kind = Kind.MALFORMED


class TaskNotFound(A2AError):
    """There is no such task, or no such push notification configuration, for this caller."""

    code = "task_not_found"
    kind = Kind.NOT_FOUND


class TaskNotCancelable(A2AError):
    """The task has ended; there is nothing left to cancel."""

    code = "task_not_cancelable"


class PushNotificationNotSupported(A2AError):
    """This agent posts no push notifications."""

    code = "push_notification_not_supported"


class UnsupportedOperation(A2AError):
    """The agent does not do this, or not with a task in this state."""

    code = "unsupported_operation"


class ContentTypeNotSupported(A2AError):
    """A part of the message has a media type that this agent does not read."""

    code = "content_type_not_supported"


class InvalidAgentResponse(A2AError):
    """The agent answered nothing that the protocol has a shape for."""

    code = "invalid_agent_response"
    kind = Kind.UPSTREAM_FAILED


class ExtendedAgentCardNotConfigured(A2AError):
    """This agent has nothing more to say about itself."""

    code = "extended_agent_card_not_configured"


class ExtensionSupportRequired(A2AError):
    """The agent requires an extension that the request does not activate; name it in `A2A-Extensions`."""

    code = "extension_support_required"


class VersionNotSupported(A2AError):
    """This agent speaks version 1.0 of the protocol; say so with `A2A-Version: 1.0`."""

    code = "version_not_supported"


class InvalidParams(A2AError):
    """The request is well formed, but a value in it is wrong."""

    code = "invalid_params"


class AgentNotFound(A2AError):
    """There is no such agent."""

    code = "agent_not_found"
    kind = Kind.NOT_FOUND


class IdempotencyKeyReused(A2AError):
    """This Idempotency-Key was sent before with another message."""

    code = "idempotency_key_reused"
    kind = Kind.CONFLICT


class TooManyStreams(A2AError):
    """Too many streams of this caller are open; close some, or poll the task instead."""

    code = "too_many_streams"
    kind = Kind.LIMITED
