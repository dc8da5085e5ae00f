"""Authenticate bearer credentials and attributions, and resolve the caller of a request.

Signatures are verified once per token and process. Rows are read again after `live_row_cache_seconds`, so that a
revocation takes effect within that time. Both results are cached by the SHA-256 of the credential. Claims only name
rows; the rows decide about access.
"""

from shared.config.settings import Settings
from shared.db.database import Database
from shared.identity.access.callers import Caller, Proof
from shared.identity.access.claims import AccessClaims, AttributionClaims
from shared.identity.authentication.credential_lookup import (
    find_live_api_key,
    find_live_attribution,
    find_live_runtime,
    find_live_session,
    is_expired_api_key,
)
from shared.identity.authentication.credential_types import (
    Credential,
    attributed_caller,
    direct_caller,
    distribution_credential,
    runtime_credential,
    user_credential,
)
from shared.identity.authentication.distribution_lookup import find_live_distribution
from shared.identity.authentication.last_use import LastUse
from shared.identity.console_tables import console_sessions
from shared.identity.errors import (
    AttributionEmpty,
    AttributionInvalid,
    AttributionMismatch,
    AttributionRepeated,
    AuthenticationRequired,
    ExpiredToken,
    InvalidToken,
)
from shared.identity.expiring_cache import ExpiringCache
from shared.identity.secrets import Prefix, hash_secret, is_well_formed
from shared.identity.tables import api_keys, distributions
from shared.identity.tokens import access_tokens, usage_attribution
from shared.identity.tokens.jws import MAX_TOKEN_CHARACTERS, TokenExpired, TokenRefused
from shared.identity.tokens.key_rotation import KeyPurpose
from shared.identity.tokens.signing_keys import SigningKeys
from shared.observability.telemetry import REFUSED_CREDENTIALS

CACHE_LIMIT = 4096
"""The largest number of entries of each cache of a process."""


class Authenticator:
    """Authenticates credentials and resolves callers; one per process, safe to share between threads."""

    def __init__(self, database: Database, settings: Settings, keys: SigningKeys | None = None) -> None:
        """Create an authenticator. A process that also issues tokens passes its `keys`, so that it caches them once."""
        self._database = database
        self._settings = settings
        self._keys = keys or SigningKeys(database, settings)
        self._last_use = LastUse(database)
        self._access_claims = ExpiringCache[AccessClaims](CACHE_LIMIT)
        self._attribution_claims = ExpiringCache[AttributionClaims](CACHE_LIMIT)
        self._credentials = ExpiringCache[Credential](CACHE_LIMIT)
        self._callers = ExpiringCache[tuple[Credential, Caller]](CACHE_LIMIT)

    def authenticate(self, authorization: str | None) -> Credential:
        """Return the credential of an `Authorization` header.

        Raises AuthenticationRequired without a bearer credential, InvalidToken or ExpiredToken if the credential is
        not valid, and ServiceUnavailable.
        """
        token = _bearer(authorization)
        digest = hash_secret(token)
        return self._credentials.find(digest) or self._recognize(token, digest)

    def authenticate_session(self, token: str) -> Credential:
        """Return the credential of a console session. Raises InvalidToken.

        This credential is never cached, so that a sign-out and a change of the session's organization take effect
        immediately.
        """
        if not is_well_formed(token, Prefix.CONSOLE_SESSION):
            raise InvalidToken
        digest = hash_secret(token)
        with self._database.autocommit() as session:
            found = find_live_session(session, digest)
        if found is None:
            raise InvalidToken
        if not found.used_recently:
            self._last_use.record(console_sessions, found.id)
        return user_credential(Proof(digest=digest, is_session=True), found)

    def find_cached(self, authorization: str | None) -> Credential | None:
        """Return the credential from the cache, or None if a query is needed.

        Raises AuthenticationRequired without a bearer credential, and InvalidToken if the credential is too long.
        """
        return self._credentials.find(hash_secret(_bearer(authorization)))

    def resolve(self, credential: Credential, attribution: str | None) -> Caller:
        """Return the caller of a request. `attribution` is the value of `Service-Usage-Attribution`, if it was sent.

        Raises AttributionInvalid, AttributionMismatch, AttributionEmpty, AttributionRepeated, OrganizationSuspended,
        and PermissionDenied for a distribution's token.
        """
        if attribution is not None:
            return self._resolve_attributed(credential, attribution)
        return direct_caller(credential)

    def _recognize(self, token: str, digest: bytes) -> Credential:
        try:
            credential, life_seconds = self._read_credential(token, digest)
        except InvalidToken:
            REFUSED_CREDENTIALS.labels(InvalidToken.code).inc()
            raise
        # Do not cache the rows beyond the token's own expiry.
        ttl = min(self._settings.live_row_cache_seconds, life_seconds)
        self._credentials.put(digest, credential, ttl_seconds=ttl)
        return credential

    def _read_credential(self, token: str, digest: bytes) -> tuple[Credential, float]:
        if is_well_formed(token, Prefix.API_KEY):
            return self._read_api_key(digest), self._settings.live_row_cache_seconds
        if is_well_formed(token, Prefix.DISTRIBUTION_TOKEN):
            return self._read_distribution(digest), self._settings.live_row_cache_seconds
        claims = self._verified_access_claims(token, digest)
        with self._database.transaction() as session:
            runtime = find_live_runtime(session, claims)
        if runtime is None:
            raise InvalidToken
        proof = Proof(digest=digest, access=claims)
        return runtime_credential(proof, claims, runtime), claims.expires_at_seconds - self._keys.now()

    def _read_api_key(self, digest: bytes) -> Credential:
        with self._database.transaction() as session:
            key = find_live_api_key(session, digest)
            has_expired = key is None and is_expired_api_key(session, digest)
        if key is None:
            raise ExpiredToken if has_expired else InvalidToken
        if not key.used_recently:
            self._last_use.record(api_keys, key.id)
        return user_credential(Proof(digest=digest), key)

    def _read_distribution(self, digest: bytes) -> Credential:
        with self._database.transaction() as session:
            distribution = find_live_distribution(session, digest)
        if distribution is None:
            raise InvalidToken
        if not distribution.used_recently:
            self._last_use.record(distributions, distribution.id)
        return distribution_credential(distribution)

    def _verified_access_claims(self, token: str, digest: bytes) -> AccessClaims:
        claims = self._access_claims.find(digest)
        # Use a cached verification only while its key is live: revoking a key invalidates the tokens that it
        # signed.
        if claims is not None and self._keys.find_verification_key(KeyPurpose.ACCESS, claims.kid) is not None:
            return claims
        try:
            claims = access_tokens.verify_access_token(self._keys, self._settings, token)
        except TokenExpired as expiry:
            raise ExpiredToken from expiry
        except TokenRefused as refusal:
            raise InvalidToken from refusal
        self._access_claims.put(digest, claims, ttl_seconds=claims.expires_at_seconds - self._keys.now())
        return claims

    def _resolve_attributed(self, credential: Credential, attribution: str) -> Caller:
        digest = hash_secret(attribution)
        known = self._callers.find(digest)
        # Compare by identity: a credential that was read again may have other permissions, so resolve its callers
        # again.
        if known is not None and known[0] is credential:
            return known[1]
        try:
            claims = self._verified_attribution_claims(attribution, digest)
            caller = self._attributed_caller(credential, claims)
        except (AttributionInvalid, AttributionMismatch) as refusal:
            REFUSED_CREDENTIALS.labels(refusal.code).inc()
            raise
        ttl = min(self._settings.live_row_cache_seconds, claims.expires_at_seconds - self._keys.now())
        self._callers.put(digest, (credential, caller), ttl_seconds=ttl)
        return caller

    def _verified_attribution_claims(self, attribution: str, digest: bytes) -> AttributionClaims:
        if not attribution.strip():
            raise AttributionEmpty
        # WSGI servers join repeated headers with commas. A token contains no comma, so a comma means a repeated
        # header.
        if "," in attribution:
            raise AttributionRepeated
        claims = self._attribution_claims.find(digest)
        if claims and self._keys.find_verification_key(KeyPurpose.ATTRIBUTION, claims.kid) is not None:
            return claims
        try:
            claims = usage_attribution.verify_usage_attribution(self._keys, self._settings, attribution)
        except TokenRefused as refusal:
            raise AttributionInvalid from refusal
        ttl = claims.expires_at_seconds - self._keys.now()
        self._attribution_claims.put(digest, claims, ttl_seconds=ttl)
        return claims

    def _attributed_caller(self, credential: Credential, claims: AttributionClaims) -> Caller:
        direct = direct_caller(credential)
        # Check before the query. A user has no deployment, so an attribution that is sent with an API key is
        # refused here.
        if claims.deployment_id != direct.deployment_id:
            raise AttributionMismatch
        with self._database.transaction() as session:
            live = find_live_attribution(session, claims)
        if live is None:
            raise AttributionInvalid
        return attributed_caller(direct, claims, live)


def _bearer(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not token:
        raise AuthenticationRequired
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise InvalidToken
    return token
