"""The caller of a request, with its four principals, which are resolved from rows that were just read.

- executor: the identity or user that provides the permissions (the deployment's current Daemon Identity, or the user);
- owner: the identity that owns the files of the call (the attributed principal, else the daemon; None for a user);
- payer: the organization that is charged;
- reported caller: the sender that a messaging network reports. It is displayed and never affects a decision.

`shared/identity/authentication/authenticator.py` creates callers; the domains only read them.
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
    """The kind of subject that executes a call."""

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
    """The identity that owns the files of a call, and its organization."""

    kind: OwnerKind
    id: UUID
    organization_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """The Daemon Identity, user or operator whose permissions apply to a call."""

    kind: ExecutorKind
    id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The credential of a call, from which the rows that authorize the call can be read again while it runs.

    `digest` is the SHA-256 of the credential. `access` holds the claims of an access token, `attribution` those of a
    `Service-Usage-Attribution` header.
    """

    digest: bytes = field(repr=False)
    is_session: bool = False
    access: AccessClaims | None = None
    attribution: AttributionClaims | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One authenticated call.

    `organization_id` is the deployment's organization, or the organization in which a user acts; it is None if the
    user selected no organization. `permissions_by_scope` is keyed by organization id or owner id, and narrowed to
    the token's scope. Read it through `permissions_on`. `credential_id` identifies the credential for rate limits.
    `bound_organization_id` is set for a key that is bound to one organization. `is_suspended` marks an operator
    whose organization is suspended: the operator can administer but cannot act in that organization. `proof` is
    None for calls that the service makes itself.
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
        """The id of the user's API key; None for a deployment and for a console session."""
        is_of_session = self.proof is not None and self.proof.is_session
        return None if self.executor.kind is not ExecutorKind.USER or is_of_session else self.credential_id

    def permissions_on(self, *, organization_id: UUID, owner_id: UUID | None = None) -> frozenset[Permission]:
        """Return the executor's permissions in an organization, plus those over one owner identity if given."""
        over_organization = self.permissions_by_scope.get(organization_id, _NOTHING)
        over_owner = self.permissions_by_scope.get(owner_id, _NOTHING) if owner_id is not None else _NOTHING
        # Most callers hold no permission over a single owner, so skip the union, which copies the set, for these
        # callers.
        return over_organization | over_owner if over_owner else over_organization

    def describe_lack(self, permission: Permission, *, where: str = "in the organization") -> str:
        """Return the sentence that names the executor and the missing permission.

        The sentence names the kind of executor, because an agent's Daemon Identity may lack a permission that the
        agent's user holds.
        """
        return f"{_NAMES[self.executor.kind]} lacks {permission} {where}."

    def lacks(self, permission: Permission, *, where: str = "in the organization") -> PermissionDenied:
        """Return the error for a missing permission of the executor."""
        return PermissionDenied(self.describe_lack(permission, where=where), permission=permission)
