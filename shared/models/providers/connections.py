"""Connections to providers: pooled per process, cuttable at every moment, unaffected by the environment.

`requests` carries the calls, but only its transport adapter: a session would add redirects, cookies, `.netrc`
credentials and the environment's proxies, none of which may touch a call that is paid. Below the adapter, urllib3's
connections tell the watchdog of the call they serve (the sending thread's) how to hang up, even before an answer.

Upstreams send each event as a chunk of its own, and http.client gives one chunk at a time however many have arrived.
What follows an event (translating, sending it on) costs by the piece, so all that is there is read, and its framing
undone, at once.
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
"""Idle connections kept; threads beyond them connect anew."""
MAX_IDLE_SECONDS = 50.0
"""Older idle connections are not reused: gateways on the way forget them silently after a minute or more."""


class _Serving(threading.local):
    call: Call | None = None
    connect_timeout_seconds: float | None = None
    connects_anew = False
    acknowledged: int | None = None


_serving = _Serving()


@contextmanager
def serving(call: Call, *, connect_timeout_seconds: float, connects_anew: bool = False) -> Iterator[None]:
    """Let connections that this thread uses in the block know the call they serve."""
    _serving.call, _serving.connect_timeout_seconds = call, connect_timeout_seconds
    _serving.connects_anew = connects_anew
    try:
        yield
    finally:
        _serving.call, _serving.connects_anew = None, False


@contextmanager
def _detecting_lost_request(connection: socket.socket | None) -> Iterator[None]:
    """Tell the call, if its connection breaks within, that nothing of its request was taken."""
    try:
        yield
    except OSError:
        before = _serving.acknowledged
        if before is not None and connection is not None and _serving.call is not None:
            _serving.call.is_unacknowledged = acknowledged_bytes(connection) == before
        raise


class ChunkDecoder:
    """Undoes the chunked framing (RFC 9112, 7.1) of bytes as they come; what is unfinished waits for the next."""

    __slots__ = ("_is_at_trailers", "_left", "_unparsed", "is_broken", "is_over")

    def __init__(self) -> None:
        self._unparsed = b""
        self._left: int | None = None
        self._is_at_trailers = False
        self.is_over = False
        self.is_broken = False

    def feed(self, received: bytes) -> bytes:
        """Give the data in these bytes, up to where the framing is broken."""
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
        self.is_broken |= len(self._unparsed) > MAX_CHUNK_HEAD_BYTES
        return b"".join(pieces)

    def _read_line(self, line: bytes) -> None:
        """Read the end of a chunk's data, the head of a chunk, or a trailer."""
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
    """A response whose `read1`, the only way to read it, gives all chunks that have arrived."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._socket = sock
        self._decoder = ChunkDecoder()

    def begin(self) -> None:
        """Read the head of the answer."""
        with _detecting_lost_request(self._socket):
            super().begin()

    def read1(self, n: int = -1) -> bytes:
        """Wait for some bytes and give all that is there; a break after them is told by the next call."""
        if not self.chunked:
            return super().read1(n)
        while not (self.isclosed() or self._decoder.is_over):
            received = b"" if self._decoder.is_broken else self.fp.read1(MAX_GATHERED_BYTES)
            if not received:
                raise IncompleteRead(b"")
            if data := self._decoder.feed(received):
                return data
        self.close()
        return b""

    def has_buffered_bytes(self) -> bool:
        """Whether bytes of the body have come; asked once the socket was shut, for until then it may wait."""
        try:
            return not self.isclosed() and bool(self.fp.peek(1))
        except (OSError, ValueError):
            return False

    @property
    def is_pollable(self) -> bool:
        """Whether the body comes in chunks, and its socket tells of all that is still to come."""
        is_decrypted = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        is_open = not (self._decoder.is_over or self._decoder.is_broken or self.isclosed())
        return self.chunked and is_open and not is_decrypted

    def fileno(self) -> int:
        """Give the descriptor of the socket."""
        return self._socket.fileno()

    @contextmanager
    def non_blocking(self) -> Iterator[None]:
        """Let `read_available` be called within the block, and nothing else."""
        read_timeout = self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            yield
        finally:
            self._socket.settimeout(read_timeout)

    def read_available(self) -> bytes | None:
        """Give the data that has come; None if nothing has, or the end or a break, which `read1` will tell."""
        try:
            received = self.fp.read1(MAX_GATHERED_BYTES)
        except OSError:
            return None
        return self._decoder.feed(received) if received else None


def response_of(body: object) -> GatheringResponse | None:
    """Give the response below a body of urllib3, if it is one of ours."""
    response = getattr(body, "_fp", None)
    return response if isinstance(response, GatheringResponse) else None


class _CuttableConnection(HTTPConnection):
    """A connection that tells its call how to cut it; also sees that connecting has a timeout of its own."""

    response_class = GatheringResponse
    _used_at = 0.0

    @property
    def is_connected(self) -> bool:
        """Whether the connection can be used again."""
        is_young = time.monotonic() - self._used_at < MAX_IDLE_SECONDS
        return is_young and not _serving.connects_anew and super().is_connected

    def _new_conn(self) -> socket.socket:
        read_timeout, self.timeout = self.timeout, _serving.connect_timeout_seconds
        try:
            return super()._new_conn()
        finally:
            self.timeout = read_timeout

    def connect(self) -> None:
        """Connect; the handshake still has the timeout for connecting, what is sent then has not."""
        super().connect()
        if self.sock is not None:
            self.sock.settimeout(self.timeout)
            self._attach()

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send a request, over the pooled connection if there is one."""
        self._used_at = time.monotonic()
        _serving.acknowledged = None
        if self.sock is not None:
            self._attach()
            _serving.acknowledged = acknowledged_bytes(self.sock)
        with _detecting_lost_request(self.sock):
            super().request(*args, **kwargs)
        if _serving.call is not None:
            _serving.call.mark_sent()

    def _attach(self) -> None:
        if _serving.call is not None and self.sock is not None:
            _serving.call.attach(partial(_hang_up, self.sock), partial(has_unread_bytes, self.sock))


class _CuttableTlsConnection(_CuttableConnection, HTTPSConnection):
    """The same over TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _CuttableConnection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _CuttableTlsConnection


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


def _hang_up(connection: socket.socket) -> None:
    """Take nothing more, so that all that the upstream could deliver can be read, and reset the connection when closed.

    An upstream that waits for room hears nothing of a socket that is shut and was read empty, until it asks again.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_WHEN_CLOSED)
    # The plain socket's method: an SSL socket's own would drop its state under the thread that reads.
    socket.socket.shutdown(connection, socket.SHUT_RDWR)


_RESET_WHEN_CLOSED = struct.pack("ii", 1, 0)
_SOCKET_OPTIONS = [*HTTPConnection.default_socket_options, *KEEPALIVE_OPTIONS]
