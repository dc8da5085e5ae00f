"""Errors with which a script refuses a request before a task exists; the web process checks it once for a message."""

from collections.abc import Mapping
from uuid import UUID

from shared.a2a import errors
from shared.a2a.behaviors.script_context import ScriptContext, find_rule
from shared.a2a.behaviors.script_parser import Script
from shared.a2a.behaviors.script_schema import ErrorTable
from shared.a2a.types import Message
from shared.errors import DomainError, Kind, PermissionDenied, ServiceUnavailable

_NO_TASK = UUID(int=0)


class RateLimited(DomainError):
    """The script says that there were too many requests; try again later."""

    code = "too_many_requests"
    kind = Kind.LIMITED


_ERRORS: Mapping[str, type[DomainError]] = {
    "TASK_NOT_FOUND": errors.TaskNotFound,
    "TASK_NOT_CANCELABLE": errors.TaskNotCancelable,
    "PUSH_NOTIFICATION_NOT_SUPPORTED": errors.PushNotificationNotSupported,
    "UNSUPPORTED_OPERATION": errors.UnsupportedOperation,
    "CONTENT_TYPE_NOT_SUPPORTED": errors.ContentTypeNotSupported,
    "INVALID_AGENT_RESPONSE": errors.InvalidAgentResponse,
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": errors.ExtendedAgentCardNotConfigured,
    "EXTENSION_SUPPORT_REQUIRED": errors.ExtensionSupportRequired,
    "VERSION_NOT_SUPPORTED": errors.VersionNotSupported,
    "INVALID_PARAMS": errors.InvalidParams,
    "PERMISSION_DENIED": PermissionDenied,
    "RATE_LIMITED": RateLimited,
    "UNAVAILABLE": ServiceUnavailable,
}


def find_refusal(script: Script, message: Message) -> DomainError | None:
    """Return the error with which a script refuses the first message of a task. Return None if it refuses nothing."""
    context = ScriptContext(task_id=_NO_TASK, context_id=message.context_id or "", message=message)
    found = find_rule(script.rules, context)
    if found is None or (error := found[0].steps[0].error) is None:
        return None
    return _refusal(error, found[1])


def _refusal(table: ErrorTable, context: ScriptContext) -> DomainError:
    make = _ERRORS[table.reason]
    return make(context.fill(table.message), retry_after_seconds=table.retry_after_seconds)
