"""The accepting thread of a web process: it reads requests from many sockets and dispatches each complete one.

The thread never blocks. Buffered requests are limited in bytes and have absolute deadlines. Client addresses
share the limit (`request_reader.py`). After a response, the connection comes back to this thread with the
bytes of its next request that have already arrived. While a response is deferred, `response_writer.py` owns
its connection. Requests of one credential share a limited number of threads (`ready_queue.py`).

gunicorn handles TLS connections, because nothing can be read before the handshake. This module overrides
private parts of gunicorn: `tests/web/server/test_gunicorn_parts.py` names them, and the version is pinned.
"""

import errno
import selectors
import socket
import time
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar

from gunicorn.workers.gthread import TConn  # type: ignore[import-untyped]

from web.server.connections import hang_up, has_hung_up
from web.server.early_responses import (
    NO_ROOM,
    TOO_LONG,
    TOO_SLOW,
    Refusal,
    find_refusal_writer,
    find_target,
    refuse,
)
from web.server.listeners import STOPPING_SECONDS, DrainingWorker, shut_down_within
from web.server.ready_queue import ReadyQueue
from web.server.request_reader import IncomingRequest, Limits, RequestReader, Stage
from web.server.response_writer import DeferredConnection, ResponseWriter

# Enough for a burst, and few enough that the thread soon reads the connections already accepted.
ACCEPTED_AT_ONCE = 64
# This many connections stay free for new clients: a connection of the busiest address is evicted for them.
SPARE_CONNECTIONS = 8
# One credential may use one in this many threads at once. This is below its tenant's share, so other
# credentials of the tenant find a thread.
CREDENTIAL_THREADS_DIVISOR = 4
# Deadlines are several seconds long, so a more frequent scan would only cost CPU time.
SCAN_SECONDS = 0.25
PIECE_BYTES = 64 << 10
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class AcceptingWorker(DrainingWorker):
    """gunicorn's threaded worker, changed: a request gets a thread only when all of it has arrived."""

    limits: ClassVar = Limits()
    send_seconds: ClassVar = 60.0

    def init_process(self) -> None:
        """Set up the worker in its own process, and serve requests."""
        self.reader = RequestReader(self.limits)
        self.scanned_at = time.monotonic()
        self.busy = 0
        # Read the setting once: for `is_ssl`, gunicorn reads three settings from two mappings each.
        self.is_tls = bool(self.cfg.is_ssl)
        self.keepalive_seconds = float(self.cfg.keepalive)
        per_credential = max(2, self.cfg.threads // CREDENTIAL_THREADS_DIVISOR)
        self.ready_queue = ReadyQueue(
            max_per_credential=per_credential, max_wait_seconds=self.limits.queue_seconds
        )
        self.writer = ResponseWriter(
            partial(self.method_queue.defer, self._on_response_sent), send_seconds=self.send_seconds
        )
        super().init_process()

    def load_wsgi(self) -> None:
        """Load the application, and find the object that renders its refusals."""
        super().load_wsgi()
        self.refusal_writer = find_refusal_writer(self.wsgi)

    def accept(self, listener: socket.socket) -> None:
        """Accept up to ACCEPTED_AT_ONCE connections. None takes a thread yet."""
        if not self._accepting:
            return  # The poller reported this listener before it was closed, so there is nothing to accept.
        if self.is_tls:
            super().accept(listener)
            return
        for _ in range(min(ACCEPTED_AT_ONCE, self.worker_connections - self.nr_conns)):
            # Evict before accepting: the spare connections keep room for clients of other addresses.
            if self.nr_conns >= self.worker_connections - SPARE_CONNECTIONS:
                self._evict(self.reader.find_victim_by_connections())
            try:
                sock, address = listener.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._evict(self.reader.find_victim_by_connections())
                elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                    raise
                return
            self.nr_conns += 1
            # As gunicorn does, except that the connection is not submitted to a thread yet.
            conn = TConn(self.cfg, sock, address, listener.getsockname())
            conn.incoming = IncomingRequest(conn, address[0] if address else "")
            self._await_request(conn.incoming, self.limits.head_seconds)

    def _await_request(self, incoming: IncomingRequest, seconds: float) -> None:
        incoming.deadline = time.monotonic() + (seconds if self.alive else min(seconds, STOPPING_SECONDS))
        self.reader.add(incoming)
        # The next request is often already in the socket's buffer: read it before registering with the
        # poller, which costs more.
        if incoming.stage is Stage.IDLE:
            self._on_readable(incoming, incoming.conn.sock)
        else:
            self._dispatch_if_complete(incoming)
        if incoming in self.reader:
            incoming.is_watched = True
            self.poller.register(
                incoming.conn.sock, selectors.EVENT_READ, partial(self._on_readable, incoming)
            )

    def _on_readable(self, incoming: IncomingRequest, sock: socket.socket) -> None:
        if incoming not in self.reader:
            return  # The poller reported this connection before it was evicted, so there is nothing to read.
        try:
            piece = sock.recv(PIECE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._drop(incoming)
            return
        self.reader.receive(incoming, piece)
        self._dispatch_if_complete(incoming)
        # The new bytes may belong to a small sender, so evict from the address with the most bytes.
        while self.reader.is_over_limit and (largest := self.reader.find_victim_by_bytes()):
            self._evict(largest)

    def _dispatch_if_complete(self, incoming: IncomingRequest) -> None:
        """Queue or start a complete request. Refuse a request whose head is too long."""
        if incoming.stage is Stage.OVERSIZED:
            self._drop(incoming, TOO_LONG)
        elif incoming.stage is Stage.COMPLETE:
            self._forget(incoming)
            # The bytes stay in memory until the response is sent, so they still count against the limit.
            incoming.conn.dispatched_bytes = len(incoming.data)
            self.reader.dispatched_bytes += len(incoming.data)
            incoming.conn.sender = incoming.sender
            incoming.conn.arrived_at = now = time.monotonic()
            if self.ready_queue.start_or_queue(incoming.sender, incoming.conn, now):
                self._start(incoming.conn)

    def _start_next(self, conn: Any) -> None:
        """Start a queued request.

        If its client has hung up, drop the request and start the credential's next request.
        """
        while conn is not None:
            if not has_hung_up(conn.sock):
                self._start(conn)
                return
            self.reader.dispatched_bytes -= conn.dispatched_bytes
            self._hang_up(conn)
            conn = self.ready_queue.end(conn.sender, time.monotonic())

    def _start(self, conn: Any) -> None:
        self.busy += 1
        self.enqueue_req(conn)

    def _evict(self, incoming: IncomingRequest | None) -> None:
        if incoming is not None:
            # Send a response only after part of a body: otherwise the client may not have sent a request at
            # all.
            self._drop(incoming, NO_ROOM if incoming.stage is Stage.BODY else None)

    def _drop(self, incoming: IncomingRequest, refusal: Refusal | None = None) -> None:
        self._forget(incoming)
        if refusal is not None:
            # Send the refusal before hanging up, and only if the socket takes it without waiting.
            refuse(self.refusal_writer, incoming.conn.sock, find_target(incoming.data), refusal)
        self._hang_up(incoming.conn)

    def _hang_up(self, conn: Any) -> None:
        self.nr_conns -= 1
        hang_up(conn.sock)
        # Break the reference cycle, so that both objects are freed immediately and not by the garbage
        # collector.
        del conn.incoming

    def _forget(self, incoming: IncomingRequest) -> None:
        self.reader.remove(incoming)
        if incoming.is_watched:
            incoming.is_watched = False
            self.poller.unregister(incoming.conn.sock)

    def murder_pending(self) -> None:
        """Drop requests that missed their deadline, and start requests that waited too long.

        gunicorn calls this method after every poll.
        """
        super().murder_pending()
        now = time.monotonic()
        if now < self.scanned_at + SCAN_SECONDS:
            return
        self.scanned_at = now
        # Use at most half of the threads: most overdue requests are refused, and must not displace other
        # requests.
        for conn in self.ready_queue.find_overdue(now, self.cfg.threads // 2 - self.busy):
            self._start_next(conn)
        for incoming in [incoming for incoming in self.reader if incoming.deadline < now]:
            self._drop(incoming, TOO_SLOW if incoming.stage is Stage.BODY else None)

    def _cap_keepalive(self, deadline: float) -> None:
        """Start to drain: shorten the deadlines of arriving requests, and end deferred responses in time."""
        super()._cap_keepalive(deadline)
        until = time.monotonic() + STOPPING_SECONDS
        for incoming in self.reader:
            incoming.deadline = min(incoming.deadline, until)
        shut_down_within(self.cfg.graceful_timeout, self.writer.shut_down)

    def finish_request(self, conn: Any, fs: Future[Any]) -> None:
        """Defer the response of a connection whose thread is done, keep the connection alive, or close it."""
        if self.is_tls:
            super().finish_request(conn, fs)
            return
        self.reader.dispatched_bytes -= conn.dispatched_bytes
        self.busy -= 1
        # Start the credential's next request before the cleanup of this connection, so that it need not wait.
        self._start_next(self.ready_queue.end(conn.sender, time.monotonic()))
        # A cancelled or failed request has no result, and its connection is closed.
        result = None if fs.cancelled() or fs.exception() is not None else fs.result()
        if isinstance(result, DeferredConnection):
            self.writer.add(result)
        else:
            self._continue_connection(conn, is_kept=bool(result))

    def _on_response_sent(self, conn: Any, is_sent: bool) -> None:  # noqa: FBT001 (through gunicorn's queue)
        """Reuse the connection if its response was sent and its request body was read. Otherwise close it."""
        # Close a connection with unread body bytes: they would be parsed as the next request.
        is_kept = is_sent and getattr(conn.parser.mesg.body.reader, "length", None) == 0
        if is_kept:
            conn.incoming.receive(conn.parser.unreader.take_buffered())
        self._continue_connection(conn, is_kept=is_kept)

    def _continue_connection(self, conn: Any, *, is_kept: bool) -> None:
        if not is_kept:
            self._hang_up(conn)
            return
        # The next request may have begun to arrive. Its stage decides how long the rest may take.
        timeouts = {Stage.IDLE: self.keepalive_seconds, Stage.BODY: self.limits.small_body_seconds}
        self._await_request(conn.incoming, timeouts.get(conn.incoming.stage, self.limits.head_seconds))
