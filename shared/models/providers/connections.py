"""Connections to providers: pooled per process, interruptible at any moment, and independent of the environment.

Only the transport adapter of `requests` is used. A session would add redirects, cookies, `.netrc` credentials and the
environment's proxies, none of which may affect a paid call. A connection registers with the `Call` that the current
thread makes, so that the watchdog can cut the connection even before a response.

Upstreams send each event as an HTTP chunk of its own, and http.client returns one chunk at a time. All later steps run
once for each read, so here a read returns the data of all chunks that have arrived.

The adapter of `shared/egress/connections.py` has another purpose: it makes a guarded connection per request, without
pool and proxy.
"""

import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPResponse, IncompleteRead
from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import ConnectionPool, HTTPConnectionPool, HTTPSConnectionPool
from urllib3.poolmanager import ProxyManager
from urllib3.response import BaseHTTPResponse

from shared.models.providers.tcp_info import acknowledged_bytes
from shared.models.providers.watchdog import Call
from shared.runtime.readable_sockets import has_unread_bytes
from shared.runtime.tcp_keepalive import KEEPALIVE_OPTIONS

MAX_GATHERED_BYTES = 64 << 10
MAX_CHUNK_HEAD_BYTES = 64 << 10
_CHUNK_HEAD = re.compile(rb"[0-9A-Fa-f]{1,15}[ \t]*(;.*)?", re.DOTALL)
CONNECTIONS_PER_PROVIDER = 128
"""Maximum number of idle connections in a provider's pool. The number of connections in use is not limited."""
MAX_IDLE_SECONDS = 50.0
"""Connections that were idle for longer are not reused: gateways silently drop connections after a minute or more."""


class _Serving(threading.local):
    call: Call | None = None
    connect_timeout_seconds: float | None = None
    connects_anew = False
    acknowledged: int | None = None


_serving = _Serving()


@contextmanager
def serving(call: Call, *, connect_timeout_seconds: float, connects_anew: bool = False) -> Iterator[None]:
    """Within the block, make connections that this thread uses register with `call`.

    With `connects_anew`, no pooled connection is reused.
    """
    _serving.call, _serving.connect_timeout_seconds = call, connect_timeout_seconds
    _serving.connects_anew = connects_anew
    try:
        yield
    finally:
        _serving.call, _serving.connects_anew = None, False


@contextmanager
def _detecting_lost_request(connection: socket.socket | None) -> Iterator[None]:
    """Mark the call as unacknowledged if the connection breaks before the upstream received a byte of the request."""
    try:
        yield
    except OSError:
        before = _serving.acknowledged
        if before is not None and connection is not None and _serving.call is not None:
            _serving.call.is_unacknowledged = acknowledged_bytes(connection) == before
        raise


class ChunkDecoder:
    """Removes the chunked framing (RFC 9112, 7.1) from bytes as they arrive. Unfinished parts wait for more bytes."""

    __slots__ = ("_is_at_trailers", "_left", "_unparsed", "is_broken", "is_over")

    def __init__(self) -> None:
        self._unparsed = b""
        self._left: int | None = None
        self._is_at_trailers = False
        self.is_over = False
        self.is_broken = False

    def feed(self, received: bytes) -> bytes:
        """Return the data in these bytes, up to invalid framing."""
        pieces: list[bytes] = []
        available = self._unparsed + received if self._unparsed else received
        at = 0
        while not (self.is_over or self.is_broken):
            if self._left:
                pieces.append(available[at : at + self._left])
                at += len(pieces[-1])
                self._left -= len(pieces[-1])
            end = available.find(b"\n", at)
            if self._left or end < 0:
                break
            self._read_line(available[at:end].strip())
            at = end + 1
        self._unparsed = available[at:]
        # Bound the memory: an upstream may send a chunk's head that never ends.
        self.is_broken |= len(self._unparsed) > MAX_CHUNK_HEAD_BYTES
        return b"".join(pieces)

    def _read_line(self, line: bytes) -> None:
        """Parse the end of a chunk's data, the head of a chunk, or a trailer."""
        if self._is_at_trailers:
            self.is_over = not line
        elif self._left == 0:
            self.is_broken, self._left = bool(line), None
        elif _CHUNK_HEAD.fullmatch(line) is None:
            self.is_broken = True
        else:
            self._left = int(line.partition(b";")[0], 16)
            self._is_at_trailers = not self._left


class GatheringResponse(HTTPResponse):
    """A response with a `read1` that returns the data of all chunks that have arrived. Use no other read method."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._socket = sock
        self._decoder = ChunkDecoder()

    def begin(self) -> None:
        """Read the head of the response."""
        with _detecting_lost_request(self._socket):
            super().begin()

    def read1(self, n: int = -1) -> bytes:
        """Wait for bytes and return all bytes that have arrived. If the framing is invalid, the next call raises."""
        if not self.chunked:
            return super().read1(n)
        while not (self.isclosed() or self._decoder.is_over):
            received = b"" if self._decoder.is_broken else self.fp.read1(MAX_GATHERED_BYTES)
            if not received:
                raise IncompleteRead(b"")
            if data := self._decoder.feed(received):
                return data
        # Close the response, as http.client does at the end, so that urllib3 returns the connection to the pool.
        self.close()
        return b""

    def has_buffered_bytes(self) -> bool:
        """Return whether unread bytes of the body have arrived. May block unless the socket was shut down before."""
        try:
            return not self.isclosed() and bool(self.fp.peek(1))
        except (OSError, ValueError):
            return False

    @property
    def is_pollable(self) -> bool:
        """Whether the body is chunked and all unread data makes the socket readable."""
        # Exclude a socket with decrypted bytes in the TLS layer, which do not make the socket readable.
        is_decrypted = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        is_open = not (self._decoder.is_over or self._decoder.is_broken or self.isclosed())
        return self.chunked and is_open and not is_decrypted

    def fileno(self) -> int:
        """Return the socket's file descriptor."""
        return self._socket.fileno()

    @contextmanager
    def non_blocking(self) -> Iterator[None]:
        """Make the socket non-blocking within the block. Within the block, read only by `read_available`."""
        read_timeout = self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            yield
        finally:
            self._socket.settimeout(read_timeout)

    def read_available(self) -> bytes | None:
        """Return the data that has arrived. None means no data, the end or a failure; `read1` shows which."""
        try:
            received = self.fp.read1(MAX_GATHERED_BYTES)
        except OSError:
            return None
        return self._decoder.feed(received) if received else None


def response_of(body: object) -> GatheringResponse | None:
    """Return the `GatheringResponse` that urllib3 wrapped into this body, or None if the body wraps another object."""
    response = getattr(body, "_fp", None)
    return response if isinstance(response, GatheringResponse) else None


class _CuttableConnection(HTTPConnection):
    """A connection that the watchdog of its call can cut, with a separate timeout for connecting."""

    response_class = GatheringResponse
    _used_at = 0.0

    @property
    def is_connected(self) -> bool:
        """Whether the connection can be reused."""
        is_young = time.monotonic() - self._used_at < MAX_IDLE_SECONDS
        return is_young and not _serving.connects_anew and super().is_connected

    def _new_conn(self) -> socket.socket:
        read_timeout, self.timeout = self.timeout, _serving.connect_timeout_seconds
        try:
            return super()._new_conn()
        finally:
            self.timeout = read_timeout

    def connect(self) -> None:
        """Connect. The connect timeout also covers the TLS handshake; the read timeout applies afterwards."""
        super().connect()
        if self.sock is not None:
            self.sock.settimeout(self.timeout)
            self._attach()

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send a request; connect first if this connection is not open."""
        self._used_at = time.monotonic()
        _serving.acknowledged = None
        if self.sock is not None:
            self._attach()
            # Record the number before the request. If it is the same when the connection breaks, the upstream has
            # received no byte of this request.
            _serving.acknowledged = acknowledged_bytes(self.sock)
        with _detecting_lost_request(self.sock):
            super().request(*args, **kwargs)
        if _serving.call is not None:
            _serving.call.mark_sent()

    def _attach(self) -> None:
        if _serving.call is not None and self.sock is not None:
            _serving.call.attach(partial(_hang_up, self.sock), partial(has_unread_bytes, self.sock))


class _CuttableTlsConnection(_CuttableConnection, HTTPSConnection):
    """A `_CuttableConnection` over TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _CuttableConnection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _CuttableTlsConnection


_POOLS = {"http": _Pool, "https": _SecurePool}


class ProviderAdapter(HTTPAdapter):
    """The transport adapter of one provider."""

    def __init__(self) -> None:
        """Create an adapter that neither limits the number of connections nor retries."""
        self._pool: ConnectionPool | None = None
        super().__init__(pool_connections=4, pool_maxsize=CONNECTIONS_PER_PROVIDER, max_retries=0)

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> ConnectionPool:
        """Return the provider's pool. Looked up once, because a provider has one address and one set of TLS rules."""
        if self._pool is None:
            self._pool = super().get_connection_with_tls_context(*args, **kwargs)
        return self._pool

    def build_response(self, req: PreparedRequest, resp: BaseHTTPResponse) -> Response:  # noqa: ARG002 (requests')
        """Return a response with the raw body only, because cookies and encodings are not used here."""
        response = Response()
        response.raw = resp
        return response

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Create pools of `_CuttableConnection`, with TCP keep-alive to detect dead connections."""
        super().init_poolmanager(*args, socket_options=_SOCKET_OPTIONS, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> ProxyManager:
        """Create pools of `_CuttableConnection` behind a proxy."""
        manager: ProxyManager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager


def _hang_up(connection: socket.socket) -> None:
    """Shut the socket down for both directions. Bytes that have arrived can still be read.

    When the socket is closed, it resets the connection. Without the reset, an upstream with a full send buffer would
    notice the end of the connection only at its next probe.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_WHEN_CLOSED)
    # Call the plain socket's method: the SSL socket's own method would drop the TLS state while a thread reads.
    socket.socket.shutdown(connection, socket.SHUT_RDWR)


_RESET_WHEN_CLOSED = struct.pack("ii", 1, 0)
_SOCKET_OPTIONS = [*HTTPConnection.default_socket_options, *KEEPALIVE_OPTIONS]
