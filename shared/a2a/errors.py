"""The errors of the protocol by their reasons (protocol definition 3.3.2 and 5.4), and the errors of this service.

    A2AError
    ├── TaskNotFound, TaskNotCancelable, UnsupportedOperation …   of the protocol; `reason` is sent unchanged
    ├── InvalidParams, InvalidRequest                             not of the protocol, but known to the published client
    └── AgentNotFound, IdempotencyKeyReused …                     of this service

`kind` has the values that all errors of this service use. The HTTP statuses that the protocol prescribes are in
`web/error_responses/a2a_errors.py`.
"""

from shared.errors import DomainError, Kind


class A2AError(DomainError):
    """The agent could not perform the operation."""

    kind = Kind.MALFORMED


class TaskNotFound(A2AError):
    """This caller has no such task, or the task has no such push notification configuration."""

    code = "task_not_found"
    kind = Kind.NOT_FOUND


class TaskNotCancelable(A2AError):
    """The task has ended and can no longer be canceled."""

    code = "task_not_cancelable"


class PushNotificationNotSupported(A2AError):
    """This agent sends no push notifications."""

    code = "push_notification_not_supported"


class UnsupportedOperation(A2AError):
    """The agent does not support this operation, or not in this state of the task."""

    code = "unsupported_operation"


class ContentTypeNotSupported(A2AError):
    """The message has a part with a media type that this agent does not accept."""

    code = "content_type_not_supported"


class InvalidAgentResponse(A2AError):
    """The agent returned no valid response."""

    code = "invalid_agent_response"
    kind = Kind.UPSTREAM_FAILED


class ExtendedAgentCardNotConfigured(A2AError):
    """This agent has no extended card."""

    code = "extended_agent_card_not_configured"


class ExtensionSupportRequired(A2AError):
    """The request does not activate an extension that the agent requires. Name it in `A2A-Extensions`."""

    code = "extension_support_required"


class VersionNotSupported(A2AError):
    """This agent supports version 1.0 of the protocol. Request it with `A2A-Version: 1.0`."""

    code = "version_not_supported"


class InvalidParams(A2AError):
    """The request is well formed, but has an invalid value."""

    code = "invalid_params"


class AgentNotFound(A2AError):
    """There is no such agent."""

    code = "agent_not_found"
    kind = Kind.NOT_FOUND


class IdempotencyKeyReused(A2AError):
    """This Idempotency-Key was used before with another message."""

    code = "idempotency_key_reused"
    kind = Kind.CONFLICT


class TooManyStreams(A2AError):
    """This caller has too many open streams. Close some of them, or poll the task instead."""

    code = "too_many_streams"
    kind = Kind.LIMITED
