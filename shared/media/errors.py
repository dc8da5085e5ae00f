"""Errors of the media domain.

A failed import stores the code of an error of this module, of `shared/egress/errors.py` or of `shared/files/errors.py`.
After an error with `is_transient`, the import is retried until it has used all its attempts.
"""

from shared.errors import DomainError, Kind


class MediaError(DomainError):
    """The attachment could not be imported."""

    code = "import_failed"
    kind = Kind.UPSTREAM_FAILED
    is_transient = False


class ImportNotFound(DomainError):
    """The distribution has no such import."""

    code = "import_not_found"
    kind = Kind.NOT_FOUND


class ImportConflict(DomainError):
    """An attachment with these ids was pushed before with a different description."""

    code = "import_conflict"
    kind = Kind.CONFLICT


class TooManyImports(DomainError):
    """This distribution has reached its limit of pending imports. Retry after some of them have finished."""

    code = "too_many_imports"
    kind = Kind.LIMITED

    def __init__(self) -> None:
        super().__init__(retry_after_seconds=5)


class MediaTypeMismatch(MediaError):
    """The content does not match its declared media type: it is HTML, a script or an executable."""

    code = "media_type_mismatch"
    kind = Kind.INVALID


class DistributionDisabled(MediaError):
    """The distribution is disabled."""

    code = "distribution_disabled"
    kind = Kind.DENIED


class NetworkNotConfigured(MediaError):
    """The distribution has no settings for this network, or the network is unknown."""

    code = "network_not_configured"


class NetworkNotRouted(DomainError):
    """The network is not among the distribution's networks. Add it there first."""

    code = "network_not_routed"
    kind = Kind.CONFLICT


class AppClientMissing(DomainError):
    """The distribution's settings lack the app's `clientId` and `clientSecret`. Set both."""

    code = "app_client_missing"
    kind = Kind.CONFLICT


class InstallationRefused(DomainError):
    """The workspace did not consent, or Slack issued no lasting token. Start the installation again."""

    code = "installation_refused"
    kind = Kind.DENIED


class SourceRefused(MediaError):
    """The network refuses the distribution's credentials."""

    code = "network_credentials_refused"


class SourceGone(MediaError):
    """The network no longer has this media: it was deleted, or its link has expired."""

    code = "media_gone"


class SourceMissing(SourceGone):
    """The network does not know this media: it was deleted, or has not reached the network's servers yet."""

    is_transient = True


class ImportNotRetryable(DomainError):
    """The import is in progress or stored, or its source is no longer kept."""

    code = "import_not_retryable"
    kind = Kind.CONFLICT


class SourceElsewhere(MediaError):
    """The network does not host this media itself but points at another server."""

    code = "source_elsewhere"


class SourceUnreadable(MediaError):
    """The network's response about this media could not be parsed."""

    code = "source_unreadable"


class SourceBusy(MediaError):
    """The network does not respond at the moment, or asks to retry later."""

    code = "source_busy"
    is_transient = True


class ImportAbandoned(MediaError):
    """Every attempt ended without a result: its worker died or took too long."""

    code = "import_abandoned"
