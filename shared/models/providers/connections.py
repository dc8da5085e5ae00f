"""Connections to providers: pooled per process, cuttable at every moment, unaffected by the environment.

`requests` carries the calls, but only its transport adapter: a session would add redirects, cookies, `.netrc`
credentials and the environment's proxies, none of which may touch a call that is paid. Below the adapter, urllib3's
connections tell the watchdog of the call they serve (the sending thread's) how to hang up, even before an answer.

Upstreams send each event as a chunk of its own, and http.client gives one chunk at a time however many have arrived.
What follows an event (translating, sending it on) costs by the piece, so all that is there is read at once.
"""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException, HTTPResponse
from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import ConnectionPool, HTTPConnectionPool, HTTPSConnectionPool
from urllib3.poolmanager import ProxyManager
from urllib3.response import BaseHTTPResponse

from shared.models.providers.watchdog import Call

MAX_GATHERED_BYTES = 64 << 10
CONNECTIONS_PER_PROVIDER = 128
"""Idle connections kept; threads beyond them connect anew."""
KEPT_IDLE_SECONDS = 50.0
"""Older idle connections are not reused: gateways on the way forget them silently after a minute or more."""


class _Serving(threading.local):
    call: Call | None = None
    connect_timeout_seconds: float | None = None


_serving = _Serving()


@contextmanager
def serving(call: Call, *, connect_timeout_seconds: float) -> Iterator[None]:
    """Let connections that this thread uses in the block know the call they serve."""
    _serving.call, _serving.connect_timeout_seconds = call, connect_timeout_seconds
    try:
        yield
    finally:
        _serving.call = None


class GatheringResponse(HTTPResponse):
    """A response whose `read1` gives all whole chunks that have arrived."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._socket = sock
        self._broken_by: Exception | None = None

    def read1(self, n: int = -1) -> bytes:
        """Wait for some bytes, then add what else is there; a break after them is told by the next call."""
        if self._broken_by is not None:
            error, self._broken_by = self._broken_by, None
            raise error
        piece = super().read1(n)
        if not self.chunked or not piece:
            return piece
        pieces, size_bytes = [piece], len(piece)
        try:
            while piece and size_bytes < MAX_GATHERED_BYTES and self._has_a_chunk():
                piece = super().read1(n)
                pieces.append(piece)
                size_bytes += len(piece)
        except (HTTPException, OSError, ValueError) as error:
            self._broken_by = error
        return b"".join(pieces)

    def _has_a_chunk(self) -> bool:
        """Whether a read would not wait: bytes of this chunk are there, or the next one's head and some of it."""
        there = self._peek()
        if self.chunk_left:
            return bool(there)
        head, _, rest = there[2:].partition(b"\r\n")
        is_last = not head.partition(b";")[0].strip(b"0")  # after it come trailers, up to an empty line
        return rest.startswith(b"\r\n") if is_last else bool(rest)

    def _peek(self) -> bytes:
        if self.isclosed():
            return b""
        patience = self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            return self.fp.peek(1)
        except ssl.SSLWantReadError:
            return b""
        finally:
            self._socket.settimeout(patience)


class _Cuttable(HTTPConnection):
    """A connection that tells its call how to cut it; also sees that connecting has a timeout of its own."""

    response_class = GatheringResponse
    _used_at = 0.0

    @property
    def is_connected(self) -> bool:
        """Whether the connection can be used again."""
        return time.monotonic() - self._used_at < KEPT_IDLE_SECONDS and super().is_connected

    def _new_conn(self) -> socket.socket:
        patience, self.timeout = self.timeout, _serving.connect_timeout_seconds
        try:
            return super()._new_conn()
        finally:
            self.timeout = patience

    def connect(self) -> None:
        """Connect; the handshake still has the timeout for connecting, what is sent then has not."""
        super().connect()
        if self.sock is not None:
            self.sock.settimeout(self.timeout)
            self._tell()

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send a request, over the pooled connection if there is one."""
        self._used_at = time.monotonic()
        if self.sock is not None:
            self._tell()
        super().request(*args, **kwargs)
        if _serving.call is not None:
            _serving.call.sent()

    def _tell(self) -> None:
        if _serving.call is not None and self.sock is not None:
            # The plain socket's method: an SSL socket's own would drop its state under the thread that reads.
            _serving.call.attach(partial(socket.socket.shutdown, self.sock, socket.SHUT_RDWR))


class _CuttableSecure(_Cuttable, HTTPSConnection):
    """The same over TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Cuttable


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _CuttableSecure


_POOLS = {"http": _Pool, "https": _SecurePool}


class ProviderAdapter(HTTPAdapter):
    """The adapter of one provider."""

    def __init__(self) -> None:
        """Keep connections without limiting how many there are; repeat nothing."""
        self._pool: ConnectionPool | None = None
        super().__init__(pool_connections=4, pool_maxsize=CONNECTIONS_PER_PROVIDER, max_retries=0)

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> ConnectionPool:
        """Find the pool once: a provider has one address and one set of TLS rules."""
        if self._pool is None:
            self._pool = super().get_connection_with_tls_context(*args, **kwargs)
        return self._pool

    def build_response(self, req: PreparedRequest, resp: BaseHTTPResponse) -> Response:  # noqa: ARG002 (requests')
        """Hand the answer on as it is: cookies, encodings and the like are read by nobody here."""
        response = Response()
        response.raw = resp
        return response

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make pools of our connections, kept alive on silent ways."""
        super().init_poolmanager(*args, socket_options=_SOCKET_OPTIONS, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> ProxyManager:
        """Likewise by way of a proxy."""
        manager: ProxyManager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager


def _socket_options() -> list[tuple[int, int, int]]:
    options = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


_SOCKET_OPTIONS = _socket_options()
