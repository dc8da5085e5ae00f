"""Claims of verified tokens, as plain data: what callers are made of. No key and no row is read here."""

from dataclasses import dataclass
from uuid import UUID

from shared.identity.access.permissions import Permission


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessClaims:
    """What a verified token says; times are seconds since 1970."""

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
    """Whom a messaging network says spoke."""

    id: str
    display: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionClaims:
    """What a verified header says."""

    kid: str
    principal_id: UUID
    deployment_id: UUID
    payer_id: UUID
    distribution_id: UUID | None
    transaction_id: str
    reported_caller: ReportedCaller | None
    expires_at_seconds: int
