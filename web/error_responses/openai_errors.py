"""OpenAI's error format, for every path below `/v1`: `{"error": {message, type, param, code}}`.

The official client retries 408, 409, 429 and 5xx unless `x-should-retry` forbids a retry. The header forbids
a retry after a final refusal, and after an error in work that was charged (`DomainError.is_final`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

PREFIX = "/v1/"
RETRY_HEADER = "x-should-retry"
RETRIED_STATUSES = frozenset({408, 409, 429})

# The codes of OpenAI that differ from this service's codes.
_CODES = {
    "authentication_required": "invalid_api_key",
    "invalid_token": "invalid_api_key",
    "rate_limited": "rate_limit_exceeded",
    "internal_error": "server_error",
}

_TYPES = {
    "invalid_api_key": "authentication_error",
    "insufficient_credits": "insufficient_quota",
    "credit_policy_suspended": "billing_error",
    "rate_limit_exceeded": "rate_limit_error",
}
_TYPES_BY_STATUS = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "invalid_request_error",
    429: "rate_limit_error",
}
_PARAMS = {"model_not_found": "model", "model_not_supported": "model"}


def is_openai_path(path: str) -> bool:
    """Return whether errors at this path have OpenAI's format."""
    return path.startswith(PREFIX) or path == PREFIX.rstrip("/")


def openai_code(code: str) -> str:
    """Return OpenAI's code for an error. Most of them are the same as this service's codes."""
    return _CODES.get(code, code)


def openai_type(status: int, code: str) -> str:
    """Return OpenAI's type of an error.

    The code decides if it has a type of its own. Otherwise the status decides.
    """
    fallback = "server_error" if status >= 500 else "invalid_request_error"  # noqa: PLR2004 (HTTP's boundary)
    return _TYPES.get(openai_code(code)) or _TYPES_BY_STATUS.get(status, fallback)


def openai_body(
    status: int, code: str, message: str, *, errors: Sequence[Mapping[str, str]] = (), **data: Any
) -> dict[str, Any]:
    """Return the body of an error, with additional data.

    `param` in the body is the named parameter, or else the first invalid field.
    """
    param = data.pop("param", None) or _PARAMS.get(code) or (errors[0]["name"] if errors else None)
    if errors:
        message = f"{message} {'; '.join(_field_error(at) for at in errors)}."
    error = {
        "message": message,
        "type": openai_type(status, code),
        "param": param,
        "code": openai_code(code),
    }
    return {"error": {**data, **error}}


def is_final_status(status: int) -> bool:
    """Return whether a repeated request would be refused with this status again."""
    return 400 <= status < 500 and status not in RETRIED_STATUSES  # noqa: PLR2004 (HTTP's client errors)


def _field_error(error: Mapping[str, str]) -> str:
    return f"{error['name']} {error['message']}"
