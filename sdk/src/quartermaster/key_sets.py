"""The service's public keys (RFC 7517), as one process remembers them.

Keys are kept for five minutes. An id that nobody knows may be a new key's: the set is fetched again, at most once in
30 seconds whatever ids strangers send, by one thread for all. While the service does not answer, old keys stay.
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
PAUSE_AFTER_FAILURE_SECONDS = 1.0
FETCH_TIMEOUT_SECONDS = 5.0


class KeysUnavailable(QuartermasterError):
    """The service's keys cannot be fetched at the moment."""


class KeySet:
    """The keys at one address; safe to share between threads. Nothing is fetched before the first use."""

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
        self._fetching = threading.Lock()

    def is_ready(self, kid: str) -> bool:
        """Tell whether `find` will answer without fetching."""
        now = self._clock()
        return now < self._next_fetch_at or (kid in self._keys and now < self._stale_at)

    def find(self, kid: str) -> ECKey | None:
        """Find a key by its id, and fetch the set where that is due; raises KeysUnavailable where nobody can tell."""
        if not self.is_ready(kid):
            self._fetch_once(kid)
        key = self._keys.get(kid)
        if key is None and self._has_failed:
            raise KeysUnavailable("The service's keys cannot be fetched at the moment.")
        return key

    def _fetch_once(self, kid: str) -> None:
        # A key that is known, if not for sure current, serves while another thread fetches.
        if not self._fetching.acquire(blocking=kid not in self._keys):
            return
        try:
            if not self.is_ready(kid):
                self._renew()
        finally:
            self._fetching.release()

    def _renew(self) -> None:
        try:
            self._keys = _import(self._fetch(self._url))
        except (httpx.HTTPError, ValueError):
            self._has_failed = True
            self._next_fetch_at = self._clock() + PAUSE_AFTER_FAILURE_SECONDS
        else:
            self._has_failed = False
            self._stale_at = self._clock() + KEEP_SECONDS
            self._next_fetch_at = self._clock() + PAUSE_SECONDS


def _fetch(url: str) -> Any:
    answer = httpx.get(url, timeout=FETCH_TIMEOUT_SECONDS, verify=trusted_authorities())
    return answer.raise_for_status().json()


def _import(document: Any) -> Mapping[str, ECKey]:
    members = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(members, list):
        raise ValueError("This is not a key set.")  # noqa: TRY004 (it came from elsewhere)
    found = (_find_key(member) for member in members)
    return {key.kid: key for key in found if key is not None and key.kid}


def _find_key(member: Any) -> ECKey | None:
    """Give a key that can verify; others may stand in the set and do not count."""
    if not isinstance(member, dict) or (member.get("kty"), member.get("crv")) != ("EC", "P-256"):
        return None
    try:
        key: ECKey = ECKey.import_key(member)
    except (JoseError, ValueError):
        return None
    return key
