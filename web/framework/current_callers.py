"""The credential and the caller of a request, revalidated after a body that was slow to arrive.

The rule it protects: a request has no effect if its caller was revoked while the body arrived
(docs/specification/identity.md#revocation). The first check is trusted as long as a cached row is, so only a
body that took seconds costs another database query.
"""

import time

from shared.identity.access.callers import Caller
from shared.identity.authentication.credential_types import Credential
from shared.identity.authentication.revalidation import CallerRevalidator

# Within this time a revocation takes effect in every process.
REVOCATION_SECONDS = 5.0


class Requester:
    """The credential and the caller of one request; both are None on a public route."""

    __slots__ = ("_began_at", "_revalidator", "_trust_seconds", "caller", "credential")

    def __init__(self, revalidator: CallerRevalidator, *, row_cache_seconds: float) -> None:
        """Start at the beginning of the request. Its credential may come from a row cached `row_cache_seconds` ago."""
        self.credential: Credential | None = None
        self.caller: Caller | None = None
        self._revalidator = revalidator
        self._began_at = time.monotonic()
        # Age of the cached row plus trust must not exceed the time that revocation may take.
        self._trust_seconds = min(row_cache_seconds, REVOCATION_SECONDS - row_cache_seconds)

    def recheck_after_wait(self) -> None:
        """Revalidate the caller, or the distribution, unless the request has only just begun.

        Raises InvalidToken, AttributionInvalid or OrganizationSuspended if that was revoked meanwhile, and
        ServiceUnavailable.
        """
        if time.monotonic() - self._began_at < self._trust_seconds:
            return
        if self.caller is not None:
            self.caller = self._revalidator.revalidate(self.caller)
        elif self.credential is not None:
            self.credential = self._revalidator.revalidate_distribution(self.credential)
