"""Why a request to the outside did not bring what was asked for.

    EgressError
    ├── AddressRefused, SchemeRefused, UrlRefused, HeaderRefused    never sent: the guard forbids it
    ├── TooManyRedirects, MediaTooLarge, EncodingRefused            final: the source will answer the same again
    ├── SourceStatusError                                              its status decides
    └── FetchTimedOut, ConnectionFailed, SourceTruncated            may pass

No error holds a URL's path or query, which may be secret; they are raised `from None`, because what `requests` raises
does.
"""

from shared.errors import DomainError, Kind

_TRANSIENT_STATUSES = frozenset({408, 409, 421, 425, 429, 500, 502, 503, 504, 507, 508})
_CLOUDFLARE = range(520, 528)


class EgressError(DomainError):
    """Another server could not be asked, or its answer could not be used."""

    code = "egress_failed"
    kind = Kind.UPSTREAM_FAILED
    is_transient: bool = False
    """Whether the same request may succeed later."""
    was_sent: bool = True
    """Whether any of the request has left, so that the other side may have acted on it."""


class AddressRefused(EgressError):
    """The address is not on the public internet, or its port is not one of the web's."""

    code = "address_refused"
    kind = Kind.INVALID


class SchemeRefused(EgressError):
    """The address has to begin with https://."""

    code = "scheme_refused"
    kind = Kind.INVALID


class UrlRefused(EgressError):
    """The address is malformed, too long, or holds a user name or password."""

    code = "url_refused"
    kind = Kind.INVALID


class HeaderRefused(EgressError):
    """A header is malformed, or is not for others to choose."""

    code = "header_refused"
    kind = Kind.INVALID


class TooManyRedirects(EgressError):
    """The source sends us from address to address."""

    code = "too_many_redirects"


class MediaTooLarge(EgressError):
    """The source's content is larger than is accepted."""

    code = "media_too_large"
    kind = Kind.TOO_LARGE


class EncodingRefused(EgressError):
    """The source compresses its content although it was asked not to."""

    code = "encoding_refused"


class SourceStatusError(EgressError):
    """The source answered with an error."""

    code = "source_answered"

    def __init__(self, status: int, *, retry_after_seconds: int | None = None, answer: bytes = b"") -> None:
        super().__init__(
            f"The source answered with status {status}.",
            retry_after_seconds=retry_after_seconds,
            sourceStatus=status,
        )
        self.status = status
        self.answer = answer
        self.is_transient = is_transient_status(status)


class TransientError(EgressError):
    """What stands in the way may be gone later."""

    is_transient = True


class FetchTimedOut(TransientError):
    """The source took too long."""

    code = "fetch_timed_out"
    kind = Kind.UPSTREAM_TIMED_OUT


class ConnectionFailed(TransientError):
    """The source could not be reached, or broke the connection or the protocol."""

    code = "connection_failed"


class SourceTruncated(TransientError):
    """The source's content ended early."""

    code = "source_truncated"


def is_transient_status(status: int) -> bool:
    """Tell whether a status says that the same request may succeed later."""
    return status in _TRANSIENT_STATUSES or status in _CLOUDFLARE
