"""Valid credentials, and the callers that are created from the rows of a credential."""

from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from shared.errors import PermissionDenied
from shared.identity.access.callers import Caller, Executor, ExecutorKind, Owner, OwnerKind, Proof
from shared.identity.access.claims import AccessClaims, AttributionClaims
from shared.identity.authentication.credential_lookup import (
    LiveApiKey,
    LiveAttribution,
    LiveRuntime,
    LiveSession,
)
from shared.identity.authentication.distribution_lookup import LiveDistribution
from shared.identity.errors import OrganizationSuspended


class CredentialKind(StrEnum):
    """The kind of a credential."""

    ACCESS_TOKEN = "access_token"  # noqa: S105 (a kind, not a secret)
    API_KEY = "api_key"
    DISTRIBUTION_TOKEN = "distribution_token"  # noqa: S105 (a kind, not a secret)
    SESSION = "session"


_OF_USERS = (CredentialKind.API_KEY, CredentialKind.SESSION)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Credential:
    """A valid credential.

    `id` identifies the credential in rate limits and logs. `caller` is the caller of a request without an
    attribution; it is None for a distribution's token. Credentials are compared by object identity, because the
    authenticator's cache relies on this.
    """

    kind: CredentialKind
    id: UUID
    caller: Caller | None
    distribution: LiveDistribution | None = None
    is_suspended: bool = False
    has_stepped_up: bool = False
    """Whether a session's user authenticated within the last `STEP_UP`."""


def direct_caller(credential: Credential) -> Caller:
    """Return the caller of a request without an attribution. Raises OrganizationSuspended, PermissionDenied."""
    if credential.is_suspended:
        raise OrganizationSuspended
    if credential.caller is None:
        raise PermissionDenied("A distribution's token is accepted only by the distribution's own routes.")
    return credential.caller


def caller_outside(credential: Credential) -> Caller:
    """Return the caller. If the user's organization is suspended, the caller has no organization and no permissions.

    Routes that do not act in an organization use this method. Raises OrganizationSuspended for a deployment or a
    bound key, and PermissionDenied for a distribution's token.
    """
    caller = credential.caller
    if not credential.is_suspended or caller is None or credential.kind not in _OF_USERS:
        return direct_caller(credential)
    if caller.bound_organization_id is not None:
        raise OrganizationSuspended
    return replace(caller, organization_id=None, payer_id=None, is_suspended=True, permissions_by_scope={})


def runtime_credential(proof: Proof, claims: AccessClaims, runtime: LiveRuntime) -> Credential:
    """Return the credential of a deployment's access token."""
    daemon_id, organization_id = runtime.daemon_id, runtime.organization_id
    caller = Caller(
        executor=Executor(kind=ExecutorKind.DAEMON_IDENTITY, id=daemon_id),
        credential_id=claims.credential_id,
        organization_id=organization_id,
        owner=Owner(kind=OwnerKind.DAEMON_IDENTITY, id=daemon_id, organization_id=organization_id),
        payer_id=organization_id,
        deployment_id=claims.deployment_id,
        version_id=claims.version_id,
        proof=proof,
        # Intersect with the token's scope, which narrows the daemon's present roles and never widens them.
        permissions_by_scope={
            scope: held & claims.scope for scope, held in runtime.permissions_by_scope.items()
        },
    )
    return Credential(
        kind=CredentialKind.ACCESS_TOKEN,
        id=claims.credential_id,
        caller=caller,
        is_suspended=runtime.is_suspended,
    )


def user_credential(proof: Proof, key: LiveApiKey) -> Credential:
    """Return the credential of a user's key or console session."""
    # Only an operator can resume a suspended organization, so an operator of that organization can still
    # authenticate.
    outside = key.is_suspended and key.is_operator
    organization_id = None if outside else key.organization_id
    caller = Caller(
        executor=Executor(kind=ExecutorKind.USER, id=key.user_id),
        credential_id=key.id,
        organization_id=organization_id,
        owner=None,
        payer_id=organization_id,
        bound_organization_id=key.bound_organization_id,
        is_operator=key.is_operator,
        proof=proof,
        is_suspended=outside,
        permissions_by_scope={} if outside else key.permissions_by_scope,
    )
    return Credential(
        kind=CredentialKind.SESSION if isinstance(key, LiveSession) else CredentialKind.API_KEY,
        id=key.id,
        caller=caller,
        is_suspended=key.is_suspended and not outside,
        has_stepped_up=isinstance(key, LiveSession) and key.has_stepped_up,
    )


def distribution_credential(distribution: LiveDistribution) -> Credential:
    """Return the credential of a distribution's token."""
    return Credential(
        kind=CredentialKind.DISTRIBUTION_TOKEN,
        id=distribution.id,
        caller=None,
        distribution=distribution,
        is_suspended=distribution.is_suspended,
    )


def attributed_caller(direct: Caller, claims: AttributionClaims, live: LiveAttribution) -> Caller:
    """Return the caller with the owner and payer of a valid attribution. Raises OrganizationSuspended."""
    if live.is_suspended:
        raise OrganizationSuspended
    return replace(
        direct,
        owner=Owner(kind=live.owner_kind, id=claims.principal_id, organization_id=live.organization_id),
        payer_id=claims.payer_id,
        distribution_id=claims.distribution_id,
        transaction_id=claims.transaction_id,
        reported_caller=claims.reported_caller,
        proof=replace(direct.proof, attribution=claims) if direct.proof is not None else None,
    )
