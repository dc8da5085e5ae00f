"""Who asks: the four principals of one call, resolved from live rows.

- executor: whose permissions count (the deployment's current daemon, or the user);
- owner: whose files these are (the attributed principal, else the daemon; nobody for a user);
- payer: the organization that is charged;
- reported caller: who a third party says spoke. It is displayed, and decides nothing.

`shared/identity/authentication/authenticator.py` makes callers; the domains only read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from shared.errors import PermissionDenied
from shared.identity.access.claims import AccessClaims, AttributionClaims, ReportedCaller
from shared.identity.access.permissions import Permission

_NOTHING: frozenset[Permission] = frozenset()


class OwnerKind(StrEnum):
    """The two kinds of identity, both of which can own files."""

    PRINCIPAL_IDENTITY = "PrincipalIdentity"
    DAEMON_IDENTITY = "DaemonIdentity"


class ExecutorKind(StrEnum):
    """Whose permissions a call runs with."""

    DAEMON_IDENTITY = "DaemonIdentity"
    USER = "User"
    OPERATOR = "Operator"


_NAMES = {
    ExecutorKind.DAEMON_IDENTITY: "The deployment's daemon identity",
    ExecutorKind.USER: "The user",
    ExecutorKind.OPERATOR: "The operator",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The identity that files of this call belong to, and its organization."""

    kind: OwnerKind
    id: UUID
    organization_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """The daemon or user whose permissions count."""

    kind: ExecutorKind
    id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a call was authenticated with, so that its rows can be read again while it is worked on.

    `digest` is the SHA-256 of the credential, `access` the access token's claims, `attribution` those of that header.
    """

    digest: bytes = field(repr=False)
    is_session: bool = False
    access: AccessClaims | None = None
    attribution: AttributionClaims | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One authenticated call.

    `organization_id` is the deployment's organization, or the one a user acts in (None: none is selected).
    `permissions_by_scope` is keyed by organization or owner id and narrowed to the token's scope; ask through
    `permissions_on`. `credential_id` is for rate limits. `bound_organization_id` is set for a key of one
    organization. `is_suspended`: an operator of a suspended organization, who administers from outside it. `proof` is
    set for calls from outside.
    """

    executor: Executor
    credential_id: UUID
    organization_id: UUID | None
    owner: Owner | None
    payer_id: UUID | None
    deployment_id: UUID | None = None
    version_id: UUID | None = None
    distribution_id: UUID | None = None
    transaction_id: str | None = None
    reported_caller: ReportedCaller | None = None
    bound_organization_id: UUID | None = None
    is_operator: bool = False
    is_suspended: bool = False
    proof: Proof | None = field(default=None, compare=False, repr=False)
    permissions_by_scope: Mapping[UUID, frozenset[Permission]] = field(
        default_factory=dict, hash=False, repr=False
    )

    @property
    def api_key_id(self) -> UUID | None:
        """The user's key that was presented; None for a deployment, and for a session of the console."""
        is_of_session = self.proof is not None and self.proof.is_session
        return None if self.executor.kind is not ExecutorKind.USER or is_of_session else self.credential_id

    def permissions_on(self, *, organization_id: UUID, owner_id: UUID | None = None) -> frozenset[Permission]:
        """Give what the executor may do to an owner of an organization, or, without an owner, in the organization."""
        over_organization = self.permissions_by_scope.get(organization_id, _NOTHING)
        over_owner = self.permissions_by_scope.get(owner_id, _NOTHING) if owner_id is not None else _NOTHING
        return over_organization | over_owner if over_owner else over_organization

    def describe_lack(self, permission: Permission, *, where: str = "in the organization") -> str:
        """Say who lacks a permission: an agent's daemon may lack what the person who asks it holds."""
        return f"{_NAMES[self.executor.kind]} lacks {permission} {where}."

    def lacks(self, permission: Permission, *, where: str = "in the organization") -> PermissionDenied:
        """Make the refusal of a call whose executor lacks a permission."""
        return PermissionDenied(self.describe_lack(permission, where=where), permission=permission)
