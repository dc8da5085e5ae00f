"""Read a caller's rows again while its call is worked on, so that revocation reaches long uploads and streams.

Asked before a commit, and by `running_work.py` every few seconds. A credential that expires meanwhile does not end
its call; one that is revoked, disabled or suspended does.
"""

from uuid import UUID

from shared.database import Database
from shared.identity.callers import Caller, Proof
from shared.identity.credential_lookup import find_live_api_key, find_live_attribution, find_live_runtime
from shared.identity.credentials import (
    Credential,
    attributed_caller,
    direct_caller,
    runtime_credential,
    user_credential,
)
from shared.identity.errors import AttributionInvalid, InvalidToken, OrganizationSuspended
from shared.identity.expiring_cache import ExpiringCache
from shared.identity.usage_attribution import AttributionClaims
from shared.settings import Settings

CACHE_LIMIT = 4096
FRESH_SECONDS = 0.25
"""How old the rows may be that a caller is judged by again; one credential with many calls is read once."""


class Rechecks:
    """Judges callers again; one per process, safe to share between threads."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._fresh_seconds = min(FRESH_SECONDS, settings.live_row_cache_seconds)
        self._credentials = ExpiringCache[Credential](CACHE_LIMIT)

    def current(self, caller: Caller) -> Caller:
        """Give the caller as the rows have it now.

        Raises InvalidToken, AttributionInvalid and OrganizationSuspended when the call must end, and Unavailable.
        """
        proof = caller.proof
        if proof is None:
            return caller
        direct = direct_caller(self._credential(proof, caller))
        if proof.attribution is not None:
            direct = self._attributed(direct, proof.attribution)
        if direct.is_suspended and not caller.is_suspended:
            raise OrganizationSuspended
        if caller.organization_id not in (None, direct.organization_id):
            raise InvalidToken  # a user who is no member there any more
        return direct

    def _credential(self, proof: Proof, caller: Caller) -> Credential:
        acting_in = caller.organization_id
        key = proof.digest + (acting_in.bytes if acting_in is not None else b"")
        known = self._credentials.find(key)
        if known is None:
            known = self._read(proof, acting_in)
            self._credentials.put(key, known, ttl_seconds=self._fresh_seconds)
        return known

    def _read(self, proof: Proof, acting_in: UUID | None) -> Credential:
        with self._database.autocommit() as session:
            if proof.access is None:
                key = find_live_api_key(session, proof.digest, acting_in=acting_in)
                credential = user_credential(proof, key) if key is not None else None
            else:
                runtime = find_live_runtime(session, proof.access)
                credential = runtime_credential(proof, proof.access, runtime) if runtime is not None else None
        if credential is None:
            raise InvalidToken
        return credential

    def _attributed(self, direct: Caller, claims: AttributionClaims) -> Caller:
        with self._database.autocommit() as session:
            live = find_live_attribution(session, claims)
        if live is None:
            raise AttributionInvalid
        return attributed_caller(direct, claims, live)
