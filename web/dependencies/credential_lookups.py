"""Look up credentials that this process does not know, at a bounded cost to the database.

A stranger's invention costs a query like an honest key. So an address may have a bounded number of lookups under way,
and requests that bring the same credential together wait for one.
"""

import threading
from concurrent.futures import Future

from shared.fairness.admission import Pool, PoolKey, anonymous_key
from shared.identity.authentication.authenticator import Authenticator
from shared.identity.authentication.credential_types import Credential


class CredentialLookups:
    """The lookups that one process has under way."""

    def __init__(self, authenticator: Authenticator, pool: Pool) -> None:
        self._authenticator = authenticator
        self._pool = pool
        self._running: dict[str | None, Future[Credential]] = {}
        self._changing = threading.Lock()

    def recognize(self, authorization: str | None, address: str) -> Credential:
        """Recognize the value of an `Authorization` header that came from an address.

        Raises AuthenticationRequired, InvalidToken, ConcurrencyLimited, PoolExhausted.
        """
        known = self._authenticator.find_cached(authorization)
        return known if known is not None else self._look_up_once(authorization, address)

    def recognize_session(self, token: str, address: str) -> Credential:
        """Recognize the cookie of a session. Raises InvalidToken, ConcurrencyLimited, PoolExhausted."""
        with self._pool.acquire(PoolKey(anonymous_key(address).member, None)):
            return self._authenticator.authenticate_session(token)

    def _look_up_once(self, authorization: str | None, address: str) -> Credential:
        with self._changing:
            running = self._running.get(authorization)
            if running is None:
                mine = self._running[authorization] = Future()
        if running is not None:
            return running.result()
        try:
            with self._pool.acquire(PoolKey(anonymous_key(address).member, None)):
                credential = self._authenticator.authenticate(authorization)
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(credential)
            return credential
        finally:
            with self._changing:
                del self._running[authorization]
