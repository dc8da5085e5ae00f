"""The exceptions of this package.

    QuartermasterError
    ├── ConfigurationError        no address or no credential; nothing was sent
    ├── ConnectionFailed          no response, or an incomplete one
    ├── ContentChanged            the source of an upload changed while it was read
    ├── DigestMismatch            content does not have the expected digest
    └── ApiError                  the service returned an error
        ├── InvalidRequest        400, 415, 422
        ├── Unauthenticated       401
        ├── PaymentRequired       402
        ├── PermissionDenied      403
        ├── NotFound              404
        ├── Conflict              409
        ├── Gone                  410
        ├── PreconditionFailed    412, 428
        ├── TooLarge              413
        ├── RateLimited           429
        └── ServerError           5xx

No exception contains a request, a credential or a link, so exceptions are safe to log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

# Limit the length: a proxy may have sent the body, and applications log the message.
MAXIMUM_DETAIL_CHARACTERS = 1000
_SERVER_ERRORS = 500


class QuartermasterError(Exception):
    """Base class of all errors of this package."""


class ConfigurationError(QuartermasterError):
    """The service's address or the credential is missing or contradictory."""


class ConnectionFailed(QuartermasterError):
    """The service did not respond, or the response was incomplete."""


class ContentChanged(QuartermasterError):
    """The source of an upload changed while it was read."""


class DigestMismatch(QuartermasterError):
    """The content does not have the expected digest."""


@dataclass(frozen=True)
class FieldError:
    """An invalid field of a request, with the reason."""

    location: str
    name: str
    message: str


class ApiError(QuartermasterError):
    """The service returned an error. `code` is stable and documented. `request_id` identifies the request in logs.

    On A2A routes, `code` is the reason in the error's details, such as TASK_NOT_FOUND. `retry_after` is in seconds.
    If `is_final` is True, the service advises against a retry.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str,
        request_id: str | None = None,
        retry_after: float | None = None,
        is_final: bool = False,
        errors: Sequence[FieldError] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after = retry_after
        self.is_final = is_final
        self.errors = tuple(errors)

    def __str__(self) -> str:
        fields = "".join(f"; {at.location} {at.name}: {at.message}" for at in self.errors)
        return f"{self.status} {self.code}: {self.message}{fields} (request {self.request_id})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Define how to unpickle: by default, pickle cannot restore exceptions with keyword-only parameters.
        return _rebuild, (type(self), self.message, self.__dict__)


class InvalidRequest(ApiError):
    """The request is malformed or has invalid values. `errors` lists the invalid fields."""


class Unauthenticated(ApiError):
    """The credential or the attribution is missing, invalid or expired."""


class PaymentRequired(ApiError):
    """The organization does not have enough credits."""


class PermissionDenied(ApiError):
    """The caller does not have the required permission."""


class NotFound(ApiError):
    """The resource does not exist, or the caller has no right to know that the resource exists."""


class Conflict(ApiError):
    """The resource's state, or another operation on it, does not allow the request."""


class Gone(ApiError):
    """The resource has expired or was deleted."""


class PreconditionFailed(ApiError):
    """The file's current version is not the expected one."""


class TooLarge(ApiError):
    """The content is larger than the service accepts."""


class RateLimited(ApiError):
    """The caller sent too many requests. Retry after `retry_after` seconds."""


class ServerError(ApiError):
    """The service failed or is temporarily unavailable."""


_CLASSES: Mapping[int, type[ApiError]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    402: PaymentRequired,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    410: Gone,
    412: PreconditionFailed,
    413: TooLarge,
    415: InvalidRequest,
    422: InvalidRequest,
    428: PreconditionFailed,
    429: RateLimited,
}


def read_error(status: int, headers: Mapping[str, str], content: bytes) -> ApiError:
    """Return the exception for an error response in any of the service's formats: problem, OAuth, OpenAI or A2A."""
    body = _read_object(content)
    # `error` shows the format: an object with OpenAI and A2A, a string with OAuth, absent in a problem (RFC 9457).
    nested = body.get("error")
    described: Mapping[str, Any] = nested if isinstance(nested, dict) else body
    details = _read_details(described)
    message = next(
        (
            described[name]
            for name in ("detail", "message", "error_description", "title")
            if described.get(name)
        ),
        "The response has no error message.",
    )
    fallback = ServerError if status >= _SERVER_ERRORS else ApiError
    return _CLASSES.get(status, fallback)(
        str(message)[:MAXIMUM_DETAIL_CHARACTERS],
        status=status,
        code=_read_code(described, details) or (nested if isinstance(nested, str) else f"http_{status}"),
        request_id=headers.get("X-Request-Id") or body.get("requestId") or _read_request_id(details),
        retry_after=_read_retry_after(headers.get("Retry-After")),
        is_final=headers.get("X-Should-Retry") == "false",
        errors=_read_fields(body.get("errors")) or _read_violations(details),
    )


def _read_code(described: Mapping[str, Any], details: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the code of an error. For A2A, return the reason in the details, because `code` is the HTTP status."""
    reasons = [at["reason"] for at in details if isinstance(at.get("reason"), str)]
    code = described.get("code")
    if isinstance(code, int):
        # Without a reason, use the name of A2A's status, such as NOT_FOUND: a name is clearer than a number.
        code = described.get("status")
    return next(iter(reasons), None) or (str(code) if code else None)


def _read_details(described: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the details of an A2A error: google.rpc.ErrorInfo, BadRequest and others."""
    details = described.get("details")
    return [at for at in details if isinstance(at, dict)] if isinstance(details, list) else []


def _read_request_id(details: Sequence[Mapping[str, Any]]) -> str | None:
    known = [at["metadata"].get("requestId") for at in details if isinstance(at.get("metadata"), dict)]
    return next((at for at in known if isinstance(at, str)), None)


def _read_violations(details: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    """Return the invalid fields of an A2A error. The error does not say whether a field is in the path or the body."""
    listed = [at["fieldViolations"] for at in details if isinstance(at.get("fieldViolations"), list)]
    return [
        FieldError(location="request", name=str(at.get("field")), message=str(at.get("description")))
        for at in chain.from_iterable(listed)
        if isinstance(at, dict)
    ]


def _read_object(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except ValueError:  # the body is not JSON, for example an HTML page from a proxy
        return {}
    return body if isinstance(body, dict) else {}


def _read_fields(errors: object) -> list[FieldError]:
    listed = errors if isinstance(errors, list) else []
    return [
        FieldError(location=str(at.get("location")), name=str(at.get("name")), message=str(at.get("message")))
        for at in listed
        if isinstance(at, dict)
    ]


def _read_retry_after(value: str | None) -> float | None:
    # Accept only seconds, as the service sends. A proxy may send a date, which depends on this machine's clock.
    return float(value) if value and value.isascii() and value.isdigit() else None


def _rebuild(kind: type[ApiError], message: str, state: dict[str, Any]) -> ApiError:
    error = kind(message, status=state["status"], code=state["code"])
    error.__dict__.update(state)
    return error
