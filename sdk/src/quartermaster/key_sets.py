"""A cache of the service's public keys (JSON Web Key Set, RFC 7517).

Keys are cached for five minutes. An unknown key id may belong to a new key, so the key set is fetched again. This
happens at most every 30 seconds, because anonymous clients can send any id. Only one thread fetches at a time. While
the service does not respond, the cached keys stay valid.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx
from joserfc.errors import JoseError
from joserfc.jwk import ECKey

from quartermaster._authorities import trusted_authorities
from quartermaster.errors import QuartermasterError

KEEP_SECONDS = 300.0
PAUSE_SECONDS = 30.0
# Shorter than the pause after a success: until the next fetch, every request with an unknown key is refused.
PAUSE_AFTER_FAILURE_SECONDS = 1.0
FETCH_TIMEOUT_SECONDS = 5.0


class KeysUnavailable(QuartermasterError):
    """The service's public keys cannot be fetched at the moment. Retry later."""


class KeySet:
    """A thread-safe cache of the keys at one URL. The first use fetches the keys."""

    def __init__(
        self,
        url: str,
        *,
        fetch: Callable[[str], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._fetch = fetch or _fetch
        self._clock = clock
        self._keys: Mapping[str, ECKey] = {}
        self._stale_at = clock()
        self._next_fetch_at = clock()
        self._has_failed = False
        self._fetch_lock = threading.Lock()

    def is_ready(self, kid: str) -> bool:
        """Return whether `find` would return without a request to the service."""
        now = self._clock()
        return now < self._next_fetch_at or (kid in self._keys and now < self._stale_at)

    def find(self, kid: str) -> ECKey | None:
        """Return a key by its id, or None. If a fetch is due, fetch the key set first.

        Raises KeysUnavailable if the key is unknown and the last fetch failed.
        """
        if not self.is_ready(kid):
            self._fetch_once(kid)
        key = self._keys.get(kid)
        if key is None and self._has_failed:
            raise KeysUnavailable("The service's public keys cannot be fetched at the moment; retry later.")
        return key

    def _fetch_once(self, kid: str) -> None:
        # Block only if the key is not cached. A thread whose key is cached uses it while another thread fetches.
        if not self._fetch_lock.acquire(blocking=kid not in self._keys):
            return
        try:
            if not self.is_ready(kid):
                self._renew()
        finally:
            self._fetch_lock.release()

    def _renew(self) -> None:
        try:
            # Replace all keys: a key that the service has revoked must not stay in the cache.
            self._keys = _import(self._fetch(self._url))
        except (httpx.HTTPError, ValueError):
            self._has_failed = True
            self._next_fetch_at = self._clock() + PAUSE_AFTER_FAILURE_SECONDS
        else:
            self._has_failed = False
            self._stale_at = self._clock() + KEEP_SECONDS
            self._next_fetch_at = self._clock() + PAUSE_SECONDS


def _fetch(url: str) -> Any:
    response = httpx.get(url, timeout=FETCH_TIMEOUT_SECONDS, verify=trusted_authorities())
    return response.raise_for_status().json()


def _import(document: Any) -> Mapping[str, ECKey]:
    members = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(members, list):
        raise ValueError("The response is not a key set.")  # noqa: TRY004 (it is data from the network)
    found = (_find_key(member) for member in members)
    return {key.kid: key for key in found if key is not None and key.kid}


def _find_key(member: Any) -> ECKey | None:
    """Return a member as an ES256 key, or None if the member is a key of another type."""
    if not isinstance(member, dict) or (member.get("kty"), member.get("crv")) != ("EC", "P-256"):
        return None
    try:
        key: ECKey = ECKey.import_key(member)
    except (JoseError, ValueError):
        return None
    return key
