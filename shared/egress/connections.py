"""SSRF protection: connect only to addresses that the policy allows.

A connection resolves its host once, checks every address, and connects to a checked address. So DNS rebinding,
redirects and unusual spellings of an address cannot bypass the check. TLS still checks the host's name. Each
connection serves one request, without a proxy.
"""

import http.client
import io
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.ssl_ import create_urllib3_context

from shared.egress.addresses import is_address
from shared.egress.deadlines import Deadline
from shared.egress.errors import AddressRefused, ConnectionFailed, FetchTimedOut
from shared.egress.policy import EgressPolicy
from shared.runtime.tcp_keepalive import KEEPALIVE_OPTIONS

CONNECT_SECONDS = 10.0
"""The time within which one address must accept the connection. A host may have several addresses."""
MAX_ADDRESSES = 4
MAX_LINE_BYTES = 65_537
_INTERIM = range(102, 200)


class Guard:
    """Opens the socket of one request, after checking its address."""

    def __init__(self, policy: EgressPolicy, deadline: Deadline, connect_seconds: float) -> None:
        self._policy = policy
        self._deadline = deadline
        self._connect_seconds = connect_seconds

    def connect(self, host: str, port: int) -> socket.socket:
        """Connect to a host. Raises AddressRefused, ConnectionFailed and FetchTimedOut."""
        addresses = self._resolve(host, port)
        # Require that all addresses are allowed: a name with both public and private addresses is an attack or a
        # mistake.
        if not addresses or not all(self._policy.is_allowed(address) for address in addresses):
            raise AddressRefused if addresses else ConnectionFailed
        for address in addresses[:MAX_ADDRESSES]:
            self._deadline.check()
            connection = self._try(address, port)
            if connection is not None:
                return self._watched(connection)
        raise ConnectionFailed

    def note_sent(self) -> None:
        """Record that bytes of the request are about to be sent."""
        self._deadline.has_sent = True

    def _watched(self, connection: socket.socket) -> socket.socket:
        try:
            self._deadline.watch(connection)
        except FetchTimedOut:
            connection.close()
            raise
        return connection

    def _resolve(self, host: str, port: int) -> Sequence[str]:
        """Resolve a name in a thread, because a resolution may take minutes and cannot be interrupted."""
        if is_address(host):
            return self._ask_resolver(host, port)
        found: list[Sequence[str]] = []

        def resolve() -> None:
            found.append(self._ask_resolver(host, port))

        thread = threading.Thread(target=resolve, name="resolver", daemon=True)
        thread.start()
        thread.join(self._deadline.remaining_seconds)
        if not found:
            raise FetchTimedOut
        return found[0]

    def _ask_resolver(self, host: str, port: int) -> Sequence[str]:
        try:
            return self._policy.resolve(host, port)
        except (OSError, UnicodeError):
            return ()

    def _try(self, address: str, port: int) -> socket.socket | None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(min(self._connect_seconds, self._deadline.remaining_seconds))
            connection.connect((address, port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option in KEEPALIVE_OPTIONS:
                connection.setsockopt(*option)
        except OSError:
            connection.close()
            return None
        return connection


class _Lines(io.BufferedReader):
    """A reader that remembers its last line and limits a line's length."""

    last = b""

    def readline(self, size: int | None = -1, /) -> bytes:
        self.last = super().readline(MAX_LINE_BYTES if size is None or size < 0 else size)
        return self.last

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            # Refuse a chunk of negative length: read(-1) would read everything that the source sends.
            raise http.client.IncompleteRead(b"")
        return super().read(size)


class _WholeHead(http.client.HTTPResponse):
    """A response whose head must end with an empty line. Otherwise a truncated head would look like an empty body."""

    def begin(self) -> None:
        self.fp = lines = _Lines(self.fp.detach())
        super().begin()
        if lines.last == b"":
            raise http.client.IncompleteRead(b"")

    def _read_status(self) -> tuple[str, int, str]:
        """Skip every interim response (RFC 9110, 15.2), because `http.client` skips only status 100."""
        version, status, reason = super()._read_status()  # type: ignore[misc]
        is_interim = status in _INTERIM
        return version, http.client.CONTINUE if is_interim else status, reason


class _GuardedConnection(HTTPConnection):
    response_class = _WholeHead

    def __init__(self, *args: Any, guard: Guard, **options: Any) -> None:
        super().__init__(*args, **options)
        self._guard = guard

    def _new_conn(self) -> socket.socket:
        return self._guard.connect(self.host.strip("[]"), self.port)

    def send(self, data: Any) -> None:
        """Send bytes of the request. Connect first if there is no connection."""
        # Connect before note_sent(), so that a request to a refused address is recorded as not sent.
        if self.sock is None:
            self.connect()
        self._guard.note_sent()
        super().send(data)


class _GuardedSecureConnection(_GuardedConnection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _GuardedConnection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _GuardedSecureConnection


class GuardedAdapter(HTTPAdapter):
    """The transport adapter of `requests` for one request, with a guarded connection."""

    def __init__(self, policy: EgressPolicy, deadline: Deadline, connect_seconds: float) -> None:
        super().__init__(max_retries=0)
        self._policy = policy
        guard = Guard(policy, deadline, connect_seconds)
        self._options: dict[str, Any] = {"guard": guard, "maxsize": 1, "block": False}
        self._pool: HTTPConnectionPool | None = None

    def get_connection_with_tls_context(
        self,
        request: requests.PreparedRequest,
        verify: Any,  # noqa: ARG002 (always verified)
        proxies: Mapping[str, str] | None = None,  # noqa: ARG002 (never a proxy)
        cert: Any = None,  # noqa: ARG002 (never a certificate of ours)
    ) -> HTTPConnectionPool:
        """Return the pool with this request's only connection."""
        where, _ = self.build_connection_pool_key_attributes(request, verify=True)
        host, port = where["host"], where["port"]
        if where["scheme"] == "https":
            context = _tls_context(self._policy.ca_bundle or DEFAULT_CA_BUNDLE_PATH)
            options = {"ssl_context": context, "cert_reqs": "CERT_REQUIRED", **self._options}
            self._pool = _SecurePool(host, port, **options)
        else:
            self._pool = _Pool(host, port, **self._options)
        return self._pool

    def close(self) -> None:
        """Close the connection."""
        if self._pool is not None:
            self._pool.close()
        super().close()

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Do nothing, because the pool always verifies certificates, with cached certificate authorities."""


@lru_cache(maxsize=8)
def _tls_context(authorities: str) -> ssl.SSLContext:
    """Return a TLS context for these certificate authorities, cached because loading them costs more than a request."""
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    context.check_hostname = True
    context.load_verify_locations(authorities)
    return context
