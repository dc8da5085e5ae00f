"""Check the callers of running requests again, so that a revocation also ends long uploads and streams.

`revocation_watcher.py` revalidates every two seconds. The statement that commits a write checks the caller once more,
by `REQUIRE_AUTHORITY`. A credential that expires, or a session that becomes idle, does not end a running request; one
that is revoked, disabled or suspended does.
"""

import json
from functools import cache
from typing import Any
from uuid import UUID

from shared.db.database import Database
from shared.identity.access.callers import Caller, Proof
from shared.identity.access.claims import AttributionClaims
from shared.identity.access.permissions import Permission
from shared.identity.access.roles import ROLE_PERMISSIONS
from shared.identity.authentication.credential_lookup import (
    find_live_attribution,
    find_unrevoked_api_key,
    find_unrevoked_runtime,
    find_unrevoked_session,
)
from shared.identity.authentication.credential_types import (
    Credential,
    attributed_caller,
    caller_outside,
    direct_caller,
    distribution_credential,
    runtime_credential,
    user_credential,
)
from shared.identity.authentication.distribution_lookup import find_live_distribution
from shared.identity.errors import AttributionInvalid, InvalidToken, OrganizationSuspended

REQUIRE_AUTHORITY = "identity_require_authority(CAST(:authority AS jsonb))"
"""A condition of the statement that commits a write; the function is volatile, so it runs after lock waits."""
AUTHORITY_LOST = "QM403"
"""The SQLSTATE with which such a statement fails."""


def authority(caller: Caller, permission: Permission, *, owner_id: UUID, organization_id: UUID) -> str | None:
    """Return the parameter of `REQUIRE_AUTHORITY` for a write to an owner's files: the rows that authorize the write.

    Return None for work that the service does on its own, without a credential.
    """
    proof = caller.proof
    if proof is None:
        return None
    authorizing_rows: dict[str, Any] = {
        "executor": caller.executor.id,
        "organization": caller.organization_id,
        "scopes": [organization_id, owner_id],
        # Pass the roles that contain the permission: the roles are defined in Python, so SQL does not know their
        # permissions.
        "roles": _roles_with(permission),
        **_credential_of(proof),
    }
    if proof.attribution is not None:
        authorizing_rows["principal"] = proof.attribution.principal_id
        authorizing_rows["payer"] = proof.attribution.payer_id
        authorizing_rows["distribution"] = proof.attribution.distribution_id
    return json.dumps(authorizing_rows, default=str)


@cache
def _roles_with(permission: Permission) -> tuple[str, ...]:
    return tuple(role.value for role, held in ROLE_PERMISSIONS.items() if permission in held)


def _credential_of(proof: Proof) -> dict[str, Any]:
    access = proof.access
    if access is None:
        return {"session" if proof.is_session else "key": proof.digest.hex()}
    return {
        "deployment": access.deployment_id,
        "client": access.client_id,
        "version": access.version_id,
        "credential": access.credential_id,
        "token": access.token_id,
    }


class CallerRevalidator:
    """Checks callers of running requests again; one per process, safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def revalidate(self, caller: Caller) -> Caller:
        """Return the caller with its current rows and permissions.

        Raises InvalidToken, AttributionInvalid or OrganizationSuspended if the request must end, and
        ServiceUnavailable.
        """
        proof = caller.proof
        if proof is None:
            return caller
        # Read the credential for the organization in which the request acts: its user may have selected another one
        # since.
        credential = self._read(proof, caller.organization_id)
        direct = caller_outside(credential) if caller.is_suspended else direct_caller(credential)
        if proof.attribution is not None:
            direct = self.revalidate_attribution(direct, proof.attribution)
        # If the organization was already suspended when an operator's request began, the request continues.
        # Otherwise it ends.
        if direct.is_suspended and not caller.is_suspended:
            raise OrganizationSuspended
        if caller.organization_id not in (None, direct.organization_id):
            raise InvalidToken  # the user is no longer a member of the organization in which the request acts
        return direct

    def revalidate_distribution(self, credential: Credential) -> Credential:
        """Return a distribution's credential with its current row. Return any other credential unchanged.

        Raises InvalidToken if the token was replaced or the distribution disabled, and ServiceUnavailable.
        """
        if credential.distribution is None:
            return credential
        with self._database.autocommit() as session:
            live = find_live_distribution(session, credential.distribution.token_hash)
        if live is None:
            raise InvalidToken
        return distribution_credential(live)

    def _read(self, proof: Proof, acting_in: UUID | None) -> Credential:
        with self._database.autocommit() as session:
            if proof.access is None:
                find = find_unrevoked_session if proof.is_session else find_unrevoked_api_key
                key = find(session, proof.digest, acting_in=acting_in)
                credential = user_credential(proof, key) if key is not None else None
            else:
                runtime = find_unrevoked_runtime(session, proof.access)
                credential = runtime_credential(proof, proof.access, runtime) if runtime is not None else None
        if credential is None:
            raise InvalidToken
        return credential

    def revalidate_attribution(self, direct: Caller, claims: AttributionClaims) -> Caller:
        """Return the caller with the owner and payer that the claims name, both read again.

        The claims' own expiry is not checked, because expiry does not end work that began in time. Raises
        AttributionInvalid, OrganizationSuspended, ServiceUnavailable.
        """
        with self._database.autocommit() as session:
            live = find_live_attribution(session, claims)
        if live is None:
            raise AttributionInvalid
        return attributed_caller(direct, claims, live)
