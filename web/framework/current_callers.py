"""The credential and the caller of a request, revalidated after a body that was slow to arrive.

The rule this module protects: a request has no effect if its caller was revoked while the body arrived
(docs/specification/identity.md#revocation). The first check stays valid for a few seconds, so only a body
that takes longer costs another database query.
"""

import time

from shared.identity.access.callers import Caller
from shared.identity.authentication.credential_types import Credential
from shared.identity.authentication.revalidation import CallerRevalidator

# A revocation takes effect in every process within this time.
REVOCATION_SECONDS = 5.0


class Requester:
    """The credential and the caller of one request. On a public route, credential and caller are None."""

    __slots__ = ("_began_at", "_revalidator", "_trust_seconds", "caller", "credential")

    def __init__(self, revalidator: CallerRevalidator, *, row_cache_seconds: float) -> None:
        """Store the request's start time. The credential's row may have been cached `row_cache_seconds` ago."""
        self.credential: Credential | None = None
        self.caller: Caller | None = None
        self._revalidator = revalidator
        self._began_at = time.monotonic()
        # The age of the cached row plus the trusted time must not exceed REVOCATION_SECONDS.
        self._trust_seconds = min(row_cache_seconds, REVOCATION_SECONDS - row_cache_seconds)

    def recheck_after_wait(self) -> None:
        """Revalidate the caller, or the distribution, unless the last check is recent enough.

        Raises InvalidToken, AttributionInvalid or OrganizationSuspended if the credential, the attribution or
        the organization was revoked meanwhile, and ServiceUnavailable if the database is unavailable.
        """
        if time.monotonic() - self._began_at < self._trust_seconds:
            return
        if self.caller is not None:
            self.caller = self._revalidator.revalidate(self.caller)
        elif self.credential is not None:
            self.credential = self._revalidator.revalidate_distribution(self.credential)
