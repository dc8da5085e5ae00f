"""Look up credentials that this process has not cached, at a bounded cost to the database.

An invented credential costs a query like a real credential. Therefore an address may run a bounded number of
lookups at once, and concurrent requests with the same credential share one lookup.
"""

import threading
from concurrent.futures import Future

from shared.fairness.admission import Pool, PoolKey, anonymous_key
from shared.identity.authentication.authenticator import Authenticator
from shared.identity.authentication.credential_types import Credential


class CredentialLookups:
    """The lookups that are running in one process."""

    def __init__(self, authenticator: Authenticator, pool: Pool) -> None:
        self._authenticator = authenticator
        self._pool = pool
        self._running: dict[str | None, Future[Credential]] = {}
        self._changing = threading.Lock()

    def recognize(self, authorization: str | None, address: str) -> Credential:
        """Return the credential of an `Authorization` header that an address sent.

        Raises AuthenticationRequired, InvalidToken, ConcurrencyLimited, PoolExhausted.
        """
        known = self._authenticator.find_cached(authorization)
        return known if known is not None else self._look_up_once(authorization, address)

    def recognize_session(self, token: str, address: str) -> Credential:
        """Return the credential of a session's cookie. Raises InvalidToken, ConcurrencyLimited, PoolExhausted."""
        with self._pool.acquire(PoolKey(anonymous_key(address).member, None)):
            return self._authenticator.authenticate_session(token)

    def _look_up_once(self, authorization: str | None, address: str) -> Credential:
        with self._changing:
            running = self._running.get(authorization)
            if running is None:
                mine = self._running[authorization] = Future()
        if running is not None:
            # Another thread is looking up the same credential: share the result, or the error, of that
            # lookup.
            return running.result()
        try:
            with self._pool.acquire(PoolKey(anonymous_key(address).member, None)):
                credential = self._authenticator.authenticate(authorization)
        # Pass every error on: threads that wait for this result must not wait forever.
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(credential)
            return credential
        finally:
            with self._changing:
                # Remove the lookup after an error too, so that the next request tries again.
                del self._running[authorization]
