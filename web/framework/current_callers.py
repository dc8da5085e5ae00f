"""Who asks, as the rows have them: at the head of the request, and again after a body that took its time.

The rule it protects: what was revoked while a body came is not done (docs/specification/identity.md#revocation). A
head is trusted as a cached row is, so that only a body that its sender took seconds for costs a statement.
"""

import time

from shared.identity.access.callers import Caller
from shared.identity.authentication.credential_types import Credential
from shared.identity.authentication.revalidation import CallerRevalidator

REVOCATION_SECONDS = 5.0
"""Within so long a revocation takes effect, in every process."""


class Requester:
    """The credential and the caller of one request; neither on a route that is open to all."""

    __slots__ = ("_began_at", "_revalidator", "_trust_seconds", "caller", "credential")

    def __init__(self, revalidator: CallerRevalidator, *, row_cache_seconds: float) -> None:
        """Begin with the request, whose credential may be known from a row of `row_cache_seconds` ago."""
        self.credential: Credential | None = None
        self.caller: Caller | None = None
        self._revalidator = revalidator
        self._began_at = time.monotonic()
        self._trust_seconds = min(row_cache_seconds, REVOCATION_SECONDS - row_cache_seconds)

    def recheck_after_wait(self) -> None:
        """Read again who asks, unless the request has only just begun.

        Raises InvalidToken, AttributionInvalid and OrganizationSuspended where they may not any more, and
        ServiceUnavailable.
        """
        if time.monotonic() - self._began_at < self._trust_seconds:
            return
        if self.caller is not None:
            self.caller = self._revalidator.revalidate(self.caller)
        elif self.credential is not None:
            self.credential = self._revalidator.revalidate_distribution(self.credential)
