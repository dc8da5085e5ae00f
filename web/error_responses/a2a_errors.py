"""A2A's error format: google.rpc.Status in JSON, with an ErrorInfo and the invalid fields.

The statuses are those of the protocol's definition 1.0.1. An error that the definition does not contain gets
the nearest status, and a reason in this service's own domain: clients take a response without an ErrorInfo
for "method not found".
"""

from collections.abc import Mapping, Sequence
from typing import Any

PROTOCOL_DOMAIN = "a2a-protocol.org"
_PATHS = frozenset(
    {"/", "/message:send", "/message:stream", "/tasks", "/extendedAgentCard", "/.well-known/agent-card.json"}
)
_PREFIXES = ("/tasks/", "/agents/")

# HTTP status and gRPC name by this service's code: the protocol's errors (5.4) and one more that clients
# know.
_TABLE: Mapping[str, tuple[int, str]] = {
    "task_not_found": (404, "NOT_FOUND"),
    "task_not_cancelable": (400, "FAILED_PRECONDITION"),
    "push_notification_not_supported": (400, "FAILED_PRECONDITION"),
    "unsupported_operation": (400, "FAILED_PRECONDITION"),
    "content_type_not_supported": (400, "INVALID_ARGUMENT"),
    "invalid_agent_response": (500, "INTERNAL"),
    "extended_agent_card_not_configured": (400, "FAILED_PRECONDITION"),
    "extension_support_required": (400, "FAILED_PRECONDITION"),
    "version_not_supported": (400, "FAILED_PRECONDITION"),
    "invalid_params": (400, "INVALID_ARGUMENT"),
}

# The reasons that published clients know, by this service's code for the same error.
_REASONS = {
    "validation_failed": "INVALID_PARAMS",
    "unknown_parameter": "INVALID_PARAMS",
    "duplicate_parameter": "INVALID_PARAMS",
    "malformed_json": "INVALID_REQUEST",
    "malformed_request": "INVALID_REQUEST",
    "not_found": "METHOD_NOT_FOUND",
    "method_not_allowed": "METHOD_NOT_FOUND",
    "method_not_found": "METHOD_NOT_FOUND",
    "parse_error": "PARSE_ERROR",
    "internal_error": "INTERNAL_ERROR",
}

# The protocol's gRPC mapping does not have these statuses, so replace them.
_STATUSES = {422: 400, 415: 400}
_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    414: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    431: "INVALID_ARGUMENT",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def is_a2a_path(path: str) -> bool:
    """Return whether errors at this path have A2A's format."""
    return path in _PATHS or path.startswith(_PREFIXES)


def a2a_status(status: int, code: str) -> int:
    """Return the status of an error in A2A's format. `status` is the status in other formats."""
    return _TABLE[code][0] if code in _TABLE else _STATUSES.get(status, status)


def a2a_reason(code: str) -> str:
    """Return the reason for a code. Clients distinguish errors by their reasons."""
    return _REASONS.get(code, code.upper())


def error_body(
    status: int,
    code: str,
    detail: str,
    *,
    request: str,
    host: str,
    errors: Sequence[Mapping[str, str]] = (),
    **data: Any,
) -> dict[str, Any]:
    """Return the body of an error.

    The ErrorInfo contains `data` and the request's id as text.
    """
    final = a2a_status(status, code)
    name = _TABLE[code][1] if code in _TABLE else _NAMES.get(final, "UNKNOWN")
    # The ErrorInfo's domain names the organization that defined the reason.
    is_known = code in _TABLE or code in _REASONS
    information = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": a2a_reason(code),
        "domain": PROTOCOL_DOMAIN if is_known else host,
        "metadata": {key: str(value) for key, value in data.items()} | {"requestId": request},
    }
    details: list[dict[str, Any]] = [information]
    if errors:
        violations = [{"field": at["name"], "description": at["message"]} for at in errors]
        details.append({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations})
    return {"error": {"code": final, "status": name, "message": detail, "details": details}}
