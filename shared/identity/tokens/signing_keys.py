"""The signing keys, which each process reads from the database and caches for `live_row_cache_seconds`.

Access tokens and attributions have separate keys, so that a leaked key cannot forge tokens of the other kind. The
database's clock is read with the keys, so that tokens do not depend on the clock of a host. `key_rotation.py`
changes the keys.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from joserfc.jwk import ECKey
from sqlalchemy import Row, Select, case, extract, func, or_, select

from shared.config.settings import Settings
from shared.db.database import Database
from shared.encryption import Encryption
from shared.errors import ServiceUnavailable
from shared.identity.tables import signing_keys
from shared.identity.tokens import jws
from shared.identity.tokens.key_rotation import KeyPurpose, KeyState, ensure_keys, lifetime_seconds

UNKNOWN_KEY_RELOAD_SECONDS = 1.0
"""The shortest time between two reads for unknown key ids, which anonymous clients can send at any rate."""
CLOCK_SECONDS = 5.0
"""How long the database's time is extrapolated; two clocks drift apart by microseconds meanwhile."""
READING_SECONDS = 5.0
"""How long a thread waits while another thread reads the keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A key pair with its id, purpose and state."""

    kid: str
    purpose: KeyPurpose
    state: KeyState
    key: ECKey


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    by_purpose: Mapping[KeyPurpose, Mapping[str, SigningKey]]
    current: Mapping[KeyPurpose, SigningKey]
    clock_offset_seconds: float
    read_at_monotonic: float


class SigningKeys:
    """The live signing keys; safe to share between threads."""

    def __init__(self, database: Database, settings: Settings) -> None:
        """Create the object without a query. The first use reads the keys, or creates them if no key exists."""
        self._database = database
        self._settings = settings
        self._statement = _live_keys(settings)
        self._encryption = Encryption(settings)
        self._snapshot: _Snapshot | None = None
        self._reading = threading.Lock()

    def sign(self, purpose: KeyPurpose, claims: dict[str, Any], *, typ: str) -> str:
        """Return a token of type `typ`, signed with the current key of a purpose."""
        signer = self.signing_key(purpose)
        return jws.sign(claims, typ=typ, kid=signer.kid, key=signer.key)

    def verify(self, purpose: KeyPurpose, token: str, *, typ: str, audience: str) -> jws.Verified:
        """Return the claims of a token after checking signature, type, issuer, audience and times.

        Raises TokenExpired, TokenRefused, ServiceUnavailable.
        """
        find_key = partial(self.find_verification_key, purpose)
        verified = jws.verify(token, typ=typ, find_key=find_key)
        issuer = self._settings.base_url
        jws.require_issued_for(verified.claims, issuer=issuer, audience=audience, now=self.now())
        return verified

    def signing_key(self, purpose: KeyPurpose) -> SigningKey:
        """Return the key that currently signs."""
        return self._live().current[purpose]

    def find_verification_key(self, purpose: KeyPurpose, kid: str) -> ECKey | None:
        """Return the key with an id if a token that this key signed can still be valid, else None."""
        found = self._live().by_purpose[purpose].get(kid)
        if found is None:
            # Another process may have created the key after the last read, so read the keys again, at a bounded
            # rate.
            age = min(UNKNOWN_KEY_RELOAD_SECONDS, self._settings.live_row_cache_seconds)
            found = self._live(age).by_purpose[purpose].get(kid)
        return found.key if found else None

    def jwks(self) -> dict[str, Any]:
        """Return the public keys of both purposes (RFC 7517), next keys included, so that clients know them early."""
        keys = [key for of_purpose in self._live().by_purpose.values() for key in of_purpose.values()]
        return {"keys": [_public(key) for key in sorted(keys, key=lambda key: key.kid)]}

    def now(self) -> float:
        """Return the database's time in seconds since 1970, extrapolated from the last read."""
        return self._live(CLOCK_SECONDS).clock_offset_seconds + time.monotonic()

    def _live(self, max_age_seconds: float | None = None) -> _Snapshot:
        limit = self._settings.live_row_cache_seconds if max_age_seconds is None else max_age_seconds
        snapshot = self._snapshot
        if snapshot is not None and time.monotonic() - snapshot.read_at_monotonic < limit:
            return snapshot
        # One thread reads the keys for all threads. The other threads wait for a bounded time, so that requests do
        # not pile up while the database is unavailable.
        if not self._reading.acquire(timeout=READING_SECONDS):
            raise ServiceUnavailable
        try:
            # Another thread may have read the keys while this one waited for the lock.
            waited = self._snapshot
            if waited is None or waited is snapshot:
                self._snapshot = waited = self._read()
            return waited
        finally:
            self._reading.release()

    def _read(self) -> _Snapshot:
        rows = self._rows()
        if len({row.purpose for row in rows if row.state == KeyState.CURRENT}) < len(KeyPurpose):
            ensure_keys(self._database, self._settings)
            rows = self._rows()
        read_at = time.monotonic()
        keys = [self._key(row) for row in rows]
        return _Snapshot(
            by_purpose={
                purpose: {key.kid: key for key in keys if key.purpose is purpose} for purpose in KeyPurpose
            },
            current={key.purpose: key for key in keys if key.state is KeyState.CURRENT},
            clock_offset_seconds=float(rows[0].now) - read_at,
            read_at_monotonic=read_at,
        )

    def _rows(self) -> list[Row[Any]]:
        with self._database.transaction() as session:
            return list(session.execute(self._statement))

    def _key(self, row: Row[Any]) -> SigningKey:
        # Reuse keys of the last snapshot: decrypting and importing one costs more than reading its row.
        known = self._snapshot.by_purpose[KeyPurpose(row.purpose)].get(row.kid) if self._snapshot else None
        key = known.key if known else self._import(row.private_jwk_encrypted)
        return SigningKey(kid=row.kid, purpose=KeyPurpose(row.purpose), state=KeyState(row.state), key=key)

    def _import(self, encrypted: bytes) -> ECKey:
        return ECKey.import_key(json.loads(self._encryption.decrypt(bytes(encrypted))))


def _live_keys(settings: Settings) -> Select[Any]:
    lifetime = case(
        *((signing_keys.c.purpose == purpose, lifetime_seconds(settings, purpose)) for purpose in KeyPurpose),
        else_=0,
    )
    return select(signing_keys, extract("epoch", func.clock_timestamp()).label("now")).where(
        or_(
            signing_keys.c.state != KeyState.PREVIOUS,
            signing_keys.c.retired_at > func.now() - func.make_interval(0, 0, 0, 0, 0, 0, lifetime),
        )
    )


def _public(key: SigningKey) -> dict[str, Any]:
    return {**key.key.as_dict(private=False), "kid": key.kid, "use": "sig", "alg": "ES256"}
