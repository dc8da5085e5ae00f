"""The domain's errors and their kinds.

An error has a `code` (stable, on the wire) and a `kind`. Only the edge maps a kind: web to a status, workers to retry
or drop. The docstring of an error class is the message that a client reads, unless a more precise one is given.

    DomainError
    ├── ValidationFailed, FieldRequired …   the request is wrong
    ├── ServiceUnavailable                  a server we need does not answer; retry
    └── (each domain's own, in its errors.py)
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar


class Kind(StrEnum):
    """The sort of failure; `web/error_responses/status_codes.py` maps each to one status."""

    MALFORMED = "malformed"
    UNAUTHENTICATED = "unauthenticated"
    UNPAID = "unpaid"
    DENIED = "denied"
    NOT_FOUND = "not_found"
    TOO_SLOW = "too_slow"
    CONFLICT = "conflict"
    GONE = "gone"
    PRECONDITION_FAILED = "precondition_failed"
    TOO_LARGE = "too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    RANGE_NOT_SATISFIABLE = "range_not_satisfiable"
    INVALID = "invalid"
    PRECONDITION_REQUIRED = "precondition_required"
    LIMITED = "limited"
    UPSTREAM_FAILED = "upstream_failed"
    UNAVAILABLE = "unavailable"
    UPSTREAM_TIMED_OUT = "upstream_timed_out"
    STORAGE_FULL = "storage_full"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One invalid input: its location (`query`, `path`, `header`, `body`), its name and what is wrong."""

    location: str
    name: str
    message: str


class DomainError(Exception):
    """The request could not be carried out."""

    code: ClassVar[str] = "error"
    kind: ClassVar[Kind] = Kind.INVALID
    is_final: bool = False
    """True forbids a retry although the kind allows one: the work was done and is paid for."""

    def __init__(
        self,
        detail: str | None = None,
        *,
        errors: Sequence[FieldError] = (),
        retry_after_seconds: int | None = None,
        **data: Any,
    ) -> None:
        """Store `data` as extension members of the error response."""
        # Only the first paragraph is the message; the rest is for maintainers.
        self.detail = detail or inspect.cleandoc(self.__doc__ or "").split("\n\n", 1)[0].replace("\n", " ")
        self.errors = tuple(errors)
        self.retry_after_seconds = retry_after_seconds
        self.data = data
        super().__init__(self.detail)


class ValidationFailed(DomainError):
    """The request is well formed, but a value in it is wrong."""

    code = "validation_failed"
    kind = Kind.INVALID


def invalid_field(name: str, message: str, *, location: str = "body") -> ValidationFailed:
    """Return the error of one invalid input; `message` completes "<name> …"."""
    return ValidationFailed(errors=[FieldError(location=location, name=name, message=message)])


class ServiceUnavailable(DomainError):
    """A server that this request needs does not respond at the moment. Try again."""

    code = "unavailable"
    kind = Kind.UNAVAILABLE

    def __init__(
        self, detail: str | None = None, *, retry_after_seconds: int | None = 1, **data: Any
    ) -> None:
        super().__init__(detail, retry_after_seconds=retry_after_seconds, **data)


class PermissionDenied(DomainError):
    """The caller lacks the permission that this operation needs."""

    code = "permission_denied"
    kind = Kind.DENIED
