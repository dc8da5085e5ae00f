"""Plain data classes for the claims of verified tokens."""

from dataclasses import dataclass
from uuid import UUID

from shared.identity.access.permissions import Permission


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessClaims:
    """The claims of a verified access token; times are seconds since 1970."""

    token_id: str
    kid: str
    client_id: UUID
    credential_id: UUID
    deployment_id: UUID
    version_id: UUID
    scope: frozenset[Permission]
    issued_at_seconds: int
    expires_at_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedCaller:
    """The sender of a message, as reported by a messaging network."""

    id: str
    display: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionClaims:
    """The claims of a verified `Service-Usage-Attribution` header; times are seconds since 1970."""

    kid: str
    principal_id: UUID
    deployment_id: UUID
    payer_id: UUID
    distribution_id: UUID | None
    transaction_id: str
    reported_caller: ReportedCaller | None
    expires_at_seconds: int
