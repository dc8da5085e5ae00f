"""What the media domain refuses or fails with.

A failed import keeps the code of one of these, of `shared/egress/errors.py` or of `shared/files/upload_errors.py`. An
error with `is_transient` is retried until the attempts are used up.
"""

from shared.errors import DomainError, Kind


class MediaError(DomainError):
    """The attachment could not be imported."""

    code = "import_failed"
    kind = Kind.UPSTREAM_FAILED
    is_transient = False


class ImportNotFound(DomainError):
    """There is no such import of this distribution."""

    code = "import_not_found"
    kind = Kind.NOT_FOUND


class ImportConflict(DomainError):
    """An attachment with these ids was pushed before and is described differently now."""

    code = "import_conflict"
    kind = Kind.CONFLICT


class TooManyImports(DomainError):
    """Too many imports of this distribution are waiting; push again when some have ended."""

    code = "too_many_imports"
    kind = Kind.LIMITED

    def __init__(self) -> None:
        super().__init__(retry_after_seconds=5)


class MediaTypeMismatch(MediaError):
    """The content is a page, a script or a program, and not the media it was said to be."""

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
    """The network is not among those that the distribution routes from; add it to its networks first."""

    code = "network_not_routed"
    kind = Kind.CONFLICT


class AppClientMissing(DomainError):
    """The distribution's settings do not name the client of its app; give `clientId` and `clientSecret`."""

    code = "app_client_missing"
    kind = Kind.CONFLICT


class InstallationRefused(DomainError):
    """The workspace did not agree, or the network gave no token that lasts for it; begin again."""

    code = "installation_refused"
    kind = Kind.DENIED


class SourceRefused(MediaError):
    """The network refuses the distribution's credentials."""

    code = "network_credentials_refused"


class SourceGone(MediaError):
    """The network no longer has this media: it was deleted, or its link has expired."""

    code = "media_gone"


class SourceMissing(SourceGone):
    """The network does not know this media: it was deleted, or has not arrived there yet."""

    is_transient = True


class ImportNotRetryable(DomainError):
    """The import is under way, or was stored, or what it takes to fetch it again is no longer kept."""

    code = "import_not_retryable"
    kind = Kind.CONFLICT


class SourceElsewhere(MediaError):
    """The network does not keep this media itself, but points at another server."""

    code = "source_elsewhere"


class SourceUnreadable(MediaError):
    """The network's answer about this media could not be understood."""

    code = "source_unreadable"


class SourceBusy(MediaError):
    """The network does not answer at the moment, or asks to come back later."""

    code = "source_busy"
    is_transient = True


class ImportAbandoned(MediaError):
    """Every attempt ended without a result: its worker died, or took too long."""

    code = "import_abandoned"
