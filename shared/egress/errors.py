"""Errors of requests to other servers.

    EgressError
    ├── AddressRefused, SchemeRefused, UrlRefused, HeaderRefused    never sent: the policy forbids it
    ├── TooManyRedirects, MediaTooLarge, EncodingRefused            final: the source would respond the same again
    ├── SourceStatusError                                           its status decides
    └── FetchTimedOut, ConnectionFailed, SourceTruncated            transient

A URL's path and query may be secret, so no error contains them. The exceptions of `requests` contain them, so the
errors of this module are raised `from None`.
"""

from shared.errors import DomainError, Kind

_TRANSIENT_STATUSES = frozenset({408, 409, 421, 425, 429, 500, 502, 503, 504, 507, 508})
_CLOUDFLARE = range(520, 528)


class EgressError(DomainError):
    """Another server could not be reached, or its response could not be used."""

    code = "egress_failed"
    kind = Kind.UPSTREAM_FAILED
    is_transient: bool = False
    """Whether the same request may succeed later."""
    was_sent: bool = True
    """Whether part of the request was sent, so that the other side may have acted on it."""


class AddressRefused(EgressError):
    """The address is not on the public internet, or its port is not 80 or 443."""

    code = "address_refused"
    kind = Kind.INVALID


class SchemeRefused(EgressError):
    """The address must begin with https://."""

    code = "scheme_refused"
    kind = Kind.INVALID


class UrlRefused(EgressError):
    """The address is malformed, too long, or contains a user name or password."""

    code = "url_refused"
    kind = Kind.INVALID


class HeaderRefused(EgressError):
    """A header is malformed, or is one that only the service itself may set."""

    code = "header_refused"
    kind = Kind.INVALID


class TooManyRedirects(EgressError):
    """The source redirects too often."""

    code = "too_many_redirects"


class MediaTooLarge(EgressError):
    """The source's content is larger than the limit."""

    code = "media_too_large"
    kind = Kind.TOO_LARGE


class EncodingRefused(EgressError):
    """The source compresses its content although it was asked not to."""

    code = "encoding_refused"


class SourceStatusError(EgressError):
    """The source responded with an error status."""

    code = "source_answered"

    def __init__(self, status: int, *, retry_after_seconds: int | None = None, answer: bytes = b"") -> None:
        super().__init__(
            f"The source responded with status {status}.",
            retry_after_seconds=retry_after_seconds,
            sourceStatus=status,
        )
        self.status = status
        self.answer = answer
        self.is_transient = is_transient_status(status)


class TransientError(EgressError):
    """An error that may pass."""

    is_transient = True


class FetchTimedOut(TransientError):
    """The source took too long to respond or to send its content."""

    code = "fetch_timed_out"
    kind = Kind.UPSTREAM_TIMED_OUT


class ConnectionFailed(TransientError):
    """The source could not be reached, or it broke off the connection or violated the protocol."""

    code = "connection_failed"


class SourceTruncated(TransientError):
    """The source's content ended before its announced length."""

    code = "source_truncated"


def is_transient_status(status: int) -> bool:
    """Return whether a status indicates that the same request may succeed later."""
    return status in _TRANSIENT_STATUSES or status in _CLOUDFLARE
