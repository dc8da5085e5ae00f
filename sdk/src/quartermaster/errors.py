"""What can go wrong, as exceptions.

    QuartermasterError
    ├── ConfigurationError        no address or no credential, before anything is sent
    ├── ConnectionFailed          no answer
    ├── ContentChanged            a source gave other bytes than it had
    ├── DigestMismatch            content does not have the digest it should have
    └── ApiError                  the service answered with an error
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

No exception holds a request, a credential or a link, so that it can be logged as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

MAXIMUM_DETAIL_CHARACTERS = 1000
_SERVER_ERRORS = 500


class QuartermasterError(Exception):
    """Any failure that this package reports."""


class ConfigurationError(QuartermasterError):
    """The address or the credential is missing or contradictory."""


class ConnectionFailed(QuartermasterError):
    """The service did not answer."""


class ContentChanged(QuartermasterError):
    """The source gave other bytes than it had when the upload began."""


class DigestMismatch(QuartermasterError):
    """The content does not have the digest that it should have."""


@dataclass(frozen=True)
class FieldError:
    """What is wrong with one field of a request."""

    location: str
    name: str
    message: str


class ApiError(QuartermasterError):
    """The service answered with an error; `code` is stable and documented, `request_id` finds it in the logs.

    Where the service speaks A2A, the code is the reason in the error's details, such as TASK_NOT_FOUND. `retry_after`
    is in seconds; `is_final` says that the service itself advises against another attempt.
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
        # Exceptions with keyword-only parameters do not travel between processes by themselves.
        return _rebuild, (type(self), self.message, self.__dict__)


class InvalidRequest(ApiError):
    """The request is malformed or its values are wrong; `errors` says which."""


class Unauthenticated(ApiError):
    """The credential or the attribution is missing, wrong or expired."""


class PaymentRequired(ApiError):
    """The organization has too few credits."""


class PermissionDenied(ApiError):
    """The caller may not do this."""


class NotFound(ApiError):
    """Nothing the caller may know of is there."""


class Conflict(ApiError):
    """The state of the resource, or another operation, stands against it."""


class Gone(ApiError):
    """What was there has expired or was deleted."""


class PreconditionFailed(ApiError):
    """The file has another current version than expected."""


class TooLarge(ApiError):
    """The content is larger than the service takes."""


class RateLimited(ApiError):
    """Too many requests; `retry_after` says how many seconds to wait."""


class ServerError(ApiError):
    """The service failed or lacks something for now."""


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
    """Read an error answer of any dialect that the service speaks: a problem, OAuth's, OpenAI's or A2A's."""
    body = _read_object(content)
    nested = body.get("error")
    described: Mapping[str, Any] = nested if isinstance(nested, dict) else body
    details = _read_details(described)
    message = next(
        (
            described[name]
            for name in ("detail", "message", "error_description", "title")
            if described.get(name)
        ),
        "The service gave no reason.",
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
    """Give the code of an error. That of A2A is a number, its HTTP status: there the reason says what is wrong."""
    reasons = [at["reason"] for at in details if isinstance(at.get("reason"), str)]
    code = described.get("code")
    if isinstance(code, int):
        code = described.get("status")
    return next(iter(reasons), None) or (str(code) if code else None)


def _read_details(described: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give what A2A says of an error besides its status: google.rpc.ErrorInfo, BadRequest and others."""
    details = described.get("details")
    return [at for at in details if isinstance(at, dict)] if isinstance(details, list) else []


def _read_request_id(details: Sequence[Mapping[str, Any]]) -> str | None:
    known = [at["metadata"].get("requestId") for at in details if isinstance(at.get("metadata"), dict)]
    return next((at for at in known if isinstance(at, str)), None)


def _read_violations(details: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    """Read what is wrong with which field; A2A does not say where the field stands."""
    listed = [at["fieldViolations"] for at in details if isinstance(at.get("fieldViolations"), list)]
    return [
        FieldError(location="request", name=str(at.get("field")), message=str(at.get("description")))
        for at in chain.from_iterable(listed)
        if isinstance(at, dict)
    ]


def _read_object(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except ValueError:  # a proxy's page
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
    # The service sends seconds; a date, which a proxy might send, would depend on this machine's clock.
    return float(value) if value and value.isascii() and value.isdigit() else None


def _rebuild(kind: type[ApiError], message: str, state: dict[str, Any]) -> ApiError:
    error = kind(message, status=state["status"], code=state["code"])
    error.__dict__.update(state)
    return error
