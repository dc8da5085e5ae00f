"""The public keys of issuers that operators trust: read by discovery, kept for a while, and read again for a new key.

Discovery names where the keys lie, and both are asked through the guard of every request to the outside. An unknown
key id is worth one look in half a minute, and keys stay when nobody answers. Issuers that cannot be reached have their
keys in a file.
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

KEPT_SECONDS = 300.0
COOLDOWN_SECONDS = 30.0
MAXIMUM_KEYS = 50
DEADLINE_SECONDS = 5.0
_NOT_JSON = (ValueError, RecursionError)


@dataclass(slots=True)
class _Kept:
    """The keys of one issuer, when they were read, and when somebody last tried to."""

    keys: Mapping[str, RSAKey] = field(default_factory=dict)
    read_at: float = float("-inf")
    tried_at: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)


class IssuerKeys:
    """The keys of all issuers in the settings; one per process, safe to share between threads."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is read until the first token. Raises ValueError for a file that holds no keys."""
        self._policy = EgressPolicy.of(settings)
        self._of_file: dict[str, Mapping[str, RSAKey]] = {}
        if settings.github_keys_file is not None:
            of_issuers = json.loads(settings.github_keys_file.read_text())
            self._of_file = {issuer.rstrip("/"): _read_keys(found) for issuer, found in of_issuers.items()}
        self._kept = {issuer: _Kept() for issuer in settings.github_issuers}

    def find(self, issuer: str, kid: str) -> RSAKey | None:
        """Find a key of an issuer; None also for an issuer that nobody trusts."""
        if issuer not in self._kept:
            return None
        if issuer in self._of_file:
            return self._of_file[issuer].get(kid)
        kept = self._kept[issuer]
        key, now = kept.keys.get(kid), time.monotonic()
        # A request that has its key does not wait for another's look for newer ones.
        is_wanted = key is None or now - kept.read_at > KEPT_SECONDS
        if is_wanted and kept.lock.acquire(blocking=key is None):
            try:
                if now - kept.tried_at > COOLDOWN_SECONDS:
                    kept.tried_at = now
                    self._read(issuer, kept)
            finally:
                kept.lock.release()
        return kept.keys.get(kid)

    def _read(self, issuer: str, kept: _Kept) -> None:
        try:
            described = self._ask(f"{issuer}/.well-known/openid-configuration")
            if described.get("issuer") != issuer or not isinstance(described.get("jwks_uri"), str):
                raise ValueError("the discovery document is another issuer's")
            kept.keys = _read_keys(self._ask(described["jwks_uri"]))
            kept.read_at = time.monotonic()
        except (EgressError, DomainError, *_NOT_JSON) as error:
            log.warning("issuer.not_read", issuer=issuer, error=str(error))

    def _ask(self, url: str) -> dict[str, Any]:
        found = json.loads(ask(url, policy=self._policy, deadline_seconds=DEADLINE_SECONDS))
        if not isinstance(found, dict):
            raise ValueError("the answer is no JSON object")  # noqa: TRY004 (what others send)
        return found


def _read_keys(found: Any) -> Mapping[str, RSAKey]:
    """Read the RSA signing keys of a key set; others in it are passed over. Raises ValueError."""
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list) or len(listed) > MAXIMUM_KEYS:
        raise ValueError("this is no key set")
    keys: dict[str, RSAKey] = {}
    for key in listed:
        usable = isinstance(key, dict) and key.get("kty") == "RSA" and key.get("use", "sig") == "sig"
        if not usable or key.get("alg", "RS256") != "RS256" or not isinstance(key.get("kid"), str):
            continue
        try:
            keys[key["kid"]] = RSAKey.import_key({name: key[name] for name in ("kty", "n", "e")})
        except (JoseError, *_NOT_JSON, KeyError, TypeError):
            continue
    return keys
