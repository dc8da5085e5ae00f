"""Anthropic's error format below `/v1/messages`: `{"type": "error", "error": {…}, "request_id": "…"}`.

The body also contains this service's code, which is more precise than the type. `x-should-retry` ends the
client's retries.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from web.error_responses.openai_errors import openai_code

PREFIX = "/v1/messages"
OVERLOADED_STATUS = 529
REQUEST_ID_HEADER = "request-id"
_TYPES_BY_STATUS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED_STATUS: "overloaded_error",
}


def is_anthropic_path(path: str) -> bool:
    """Return whether errors at this path have Anthropic's format."""
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def anthropic_status(status: int, code: str) -> int:
    """Return the status of an error in Anthropic's dialect.

    The dialect has its own status for an overloaded service.
    """
    return OVERLOADED_STATUS if code == "overloaded" else status


def anthropic_type(status: int) -> str:
    """Return the type of an error with this status."""
    fallback = "api_error" if status >= 500 else "invalid_request_error"  # noqa: PLR2004 (HTTP's boundary)
    return _TYPES_BY_STATUS.get(status, fallback)


def anthropic_body(
    status: int,
    code: str,
    message: str,
    *,
    request_id: str,
    errors: Sequence[Mapping[str, str]] = (),
    **data: Any,
) -> dict[str, Any]:
    """Return the body of an error. Additional data is in the same object as the code."""
    findings = "; ".join(f"{at['name']} {at['message']}" for at in errors)
    error = {
        "type": anthropic_type(status),
        "message": f"{message} {findings}." if findings else message,
        "code": openai_code(code),
    }
    return {"type": "error", "error": {**data, **error}, "request_id": request_id}
