"""The errors the domain raises, and the few kinds they come in.

An error names what went wrong (`code`, stable, on the wire) and what sort of thing that is (`kind`); the edge alone
turns a kind into a status or into "retry this job". The docstring of an error class is the sentence its reader gets
when nothing more precise is known.

    DomainError
    ├── ValidationFailed, FieldRequired …   the request is wrong
    ├── Unavailable                         a server we need does not answer; try again
    └── (each domain's own, in its errors.py)
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar


class Kind(StrEnum):
    """What sort of failure an error is; `web/error_responses/status_codes.py` maps each to one status."""

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
    """One wrong input: where it stood (`query`, `path`, `header`, `body`), its name, what is wrong with it."""

    location: str
    name: str
    message: str


class DomainError(Exception):
    """The request could not be carried out."""

    code: ClassVar[str] = "error"
    kind: ClassVar[Kind] = Kind.INVALID
    is_final: bool = False
    """Whether a retry must not follow although the kind invites one: work was done that is paid for."""

    def __init__(
        self,
        detail: str | None = None,
        *,
        errors: Sequence[FieldError] = (),
        retry_after_seconds: int | None = None,
        **data: Any,
    ) -> None:
        """Keep `data` as extension members of the answer."""
        self.detail = detail or inspect.cleandoc(self.__doc__ or "").split("\n\n", 1)[0].replace("\n", " ")
        self.errors = tuple(errors)
        self.retry_after_seconds = retry_after_seconds
        self.data = data
        super().__init__(self.detail)


class ValidationFailed(DomainError):
    """The request is well formed, but a value in it is wrong."""

    code = "validation_failed"
    kind = Kind.INVALID


class ServiceUnavailable(DomainError):
    """A server this request needs does not answer at the moment; try again."""

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
