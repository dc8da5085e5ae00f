"""The public keys of trusted token issuers, found by OpenID discovery and cached.

All requests pass the egress policy. An unknown key id causes at most one request in `COOLDOWN_SECONDS`. While an
issuer is unavailable, its cached keys stay valid. A file can hold the keys of issuers that the service cannot
reach.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from shared.config.settings import Settings
from shared.egress.errors import EgressError
from shared.egress.fetch import ask
from shared.egress.policy import EgressPolicy
from shared.errors import DomainError
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

CACHE_SECONDS = 300.0
COOLDOWN_SECONDS = 30.0
"""The shortest time between two reads of an issuer's keys, failed ones included."""
MAXIMUM_KEYS = 50
DEADLINE_SECONDS = 5.0
_NOT_JSON = (ValueError, RecursionError)


@dataclass(slots=True)
class _CachedKeys:
    """The keys of one issuer, and the monotonic times of the last read and of the last attempt."""

    keys: Mapping[str, RSAKey] = field(default_factory=dict)
    read_at: float = float("-inf")
    tried_at: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)


class IssuerKeys:
    """The keys of all trusted issuers; one per process, safe to share between threads."""

    def __init__(self, settings: Settings) -> None:
        """Read the key file, if one is configured. Raises ValueError if the file is invalid.

        The first token of an issuer causes the first request to this issuer.
        """
        self._policy = EgressPolicy.of(settings)
        self._of_file: dict[str, Mapping[str, RSAKey]] = {}
        if settings.github_keys_file is not None:
            of_issuers = json.loads(settings.github_keys_file.read_text())
            self._of_file = {issuer.rstrip("/"): _read_keys(found) for issuer, found in of_issuers.items()}
        self._cached = {issuer: _CachedKeys() for issuer in settings.github_issuers}

    def find(self, issuer: str, kid: str) -> RSAKey | None:
        """Return a key of an issuer, or None for an unknown key or an untrusted issuer."""
        if issuer not in self._cached:
            return None
        if issuer in self._of_file:
            return self._of_file[issuer].get(kid)
        cached = self._cached[issuer]
        key, now = cached.keys.get(kid), time.monotonic()
        is_read_due = key is None or now - cached.read_at > CACHE_SECONDS
        # Wait for the lock only without a cached key: a caller with a cached key need not wait for another thread's
        # refresh.
        if is_read_due and cached.lock.acquire(blocking=key is None):
            try:
                if now - cached.tried_at > COOLDOWN_SECONDS:
                    cached.tried_at = now
                    self._read(issuer, cached)
            finally:
                cached.lock.release()
        return cached.keys.get(kid)

    def _read(self, issuer: str, cached: _CachedKeys) -> None:
        try:
            described = self._ask(f"{issuer}/.well-known/openid-configuration")
            if described.get("issuer") != issuer or not isinstance(described.get("jwks_uri"), str):
                raise ValueError("the discovery document is another issuer's")
            cached.keys = _read_keys(self._ask(described["jwks_uri"]))
            cached.read_at = time.monotonic()
        except (EgressError, DomainError, *_NOT_JSON) as error:
            log.warning("issuer.not_read", issuer=issuer, error=str(error))

    def _ask(self, url: str) -> dict[str, Any]:
        found = json.loads(ask(url, policy=self._policy, deadline_seconds=DEADLINE_SECONDS))
        if not isinstance(found, dict):
            raise ValueError("the response is not a JSON object")  # noqa: TRY004 (an external value, not an argument)
        return found


def _read_keys(found: Any) -> Mapping[str, RSAKey]:
    """Return the RSA signing keys of a key set, by key id. Skip all other keys. Raises ValueError."""
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list) or len(listed) > MAXIMUM_KEYS:
        raise ValueError("this is not a key set")
    keys: dict[str, RSAKey] = {}
    for key in listed:
        usable = isinstance(key, dict) and key.get("kty") == "RSA" and key.get("use", "sig") == "sig"
        if not usable or key.get("alg", "RS256") != "RS256" or not isinstance(key.get("kid"), str):
            continue
        try:
            keys[key["kid"]] = RSAKey.import_key({name: key[name] for name in ("kty", "n", "e")})
        # Skip a malformed key, which must not make the other keys unusable.
        except (JoseError, *_NOT_JSON, KeyError, TypeError):
            continue
    return keys
