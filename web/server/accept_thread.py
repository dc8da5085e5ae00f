"""The accepting thread of the front: it gathers requests as they come and gives a thread those that have arrived.

It never blocks. What is gathered is bounded, has absolute deadlines and is shared among addresses
(`request_reader.py`). After an answer a connection waits for its next request here again, together with what has come
of it; one whose answer waits goes to `response_writer.py` meanwhile. Requests of one credential take turns
(`ready_queue.py`).

TLS, which cannot be gathered before its handshake, stays with gunicorn's own ways. The private parts of gunicorn that
are touched here are named in `tests/web/server/test_gunicorn_parts.py`, and its version is pinned.
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
from web.server.deferred_connections import HeldConnection
from web.server.early_responses import NO_ROOM, TOO_LONG, TOO_SLOW, Refusal, find_target, refuse, writer_of
from web.server.listeners import STOPPING_SECONDS, DrainingWorker, wind_up_within
from web.server.ready_queue import ReadyQueue
from web.server.request_reader import Arrival, Limits, RequestReader, Stage
from web.server.response_writer import AnswerWriter

ACCEPTED_AT_ONCE = 64
SPARE_CONNECTIONS = 8
THREADS_PART = 4
"""One credential has one thread in so many at once: fewer than its tenant's share of them."""
LOOK_SECONDS = 0.25
PIECE_BYTES = 64 << 10
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class GatheringWorker(DrainingWorker):
    """gunicorn's threaded worker, in which a request costs a thread only once it has arrived."""

    limits: ClassVar = Limits()
    send_seconds: ClassVar = 60.0

    def init_process(self) -> None:
        """Start to serve, in the worker's own process."""
        self.arrivals = RequestReader(self.limits)
        self.looked_at = time.monotonic()
        self.busy = 0
        # Read once: gunicorn looks a setting up in two mappings, three times for `is_ssl`.
        self.is_tls = bool(self.cfg.is_ssl)
        self.keepalive_seconds = float(self.cfg.keepalive)
        each = max(2, self.cfg.threads // THREADS_PART)
        self.turns = ReadyQueue(each=each, max_wait_seconds=self.limits.turn_seconds)
        self.writer = AnswerWriter(
            partial(self.method_queue.defer, self._take_back), send_seconds=self.send_seconds
        )
        super().init_process()

    def load_wsgi(self) -> None:
        """Load the application, and how it refuses."""
        super().load_wsgi()
        self.refusals = writer_of(self.wsgi)

    def accept(self, listener: socket.socket) -> None:
        """Accept some connections; none is given a thread yet."""
        if not self._accepting:
            return  # it was closed after the poller had told of it
        if self.is_tls:
            super().accept(listener)
            return
        for _ in range(min(ACCEPTED_AT_ONCE, self.worker_connections - self.nr_conns)):
            if self.nr_conns >= self.worker_connections - SPARE_CONNECTIONS:
                self._evict(self.arrivals.find_longest())
            try:
                sock, address = listener.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._evict(self.arrivals.find_longest())
                elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                    raise
                return
            self.nr_conns += 1
            conn = TConn(self.cfg, sock, address, listener.getsockname())
            conn.arrival = Arrival(conn, address[0] if address else "")
            self._gather(conn.arrival, self.limits.head_seconds)

    def _gather(self, arrival: Arrival, seconds: float) -> None:
        arrival.deadline = time.monotonic() + (seconds if self.alive else min(seconds, STOPPING_SECONDS))
        self.arrivals.add(arrival)
        if arrival.stage is Stage.IDLE:
            self._on_readable(arrival, arrival.conn.sock)
        else:
            self._pass_on(arrival)
        if arrival in self.arrivals:
            arrival.is_watched = True
            self.poller.register(arrival.conn.sock, selectors.EVENT_READ, partial(self._on_readable, arrival))

    def _on_readable(self, arrival: Arrival, sock: socket.socket) -> None:
        if arrival not in self.arrivals:
            return  # it was evicted after the poller had told of it
        try:
            piece = sock.recv(PIECE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._drop(arrival)
            return
        self.arrivals.take(arrival, piece)
        self._pass_on(arrival)
        while self.arrivals.is_too_much and (largest := self.arrivals.find_largest()):
            self._evict(largest)

    def _pass_on(self, arrival: Arrival) -> None:
        """Give a request that is whole to a thread."""
        if arrival.stage is Stage.OVERSIZED:
            self._drop(arrival, TOO_LONG)
        elif arrival.stage is Stage.WHOLE:
            self._forget(arrival)
            arrival.conn.held_bytes = len(arrival.data)
            self.arrivals.handed_over_bytes += len(arrival.data)
            arrival.conn.sender = arrival.sender
            arrival.conn.arrived_at = now = time.monotonic()
            if self.turns.may_begin(arrival.sender, arrival.conn, now):
                self._begin(arrival.conn)

    def _begin_after_wait(self, conn: Any) -> None:
        """Begin a request whose turn has come, or the one after it if its client has gone."""
        while conn is not None:
            if not has_hung_up(conn.sock):
                self._begin(conn)
                return
            self.arrivals.handed_over_bytes -= conn.held_bytes
            self._hang_up(conn)
            conn = self.turns.end(conn.sender, time.monotonic())

    def _begin(self, conn: Any) -> None:
        self.busy += 1
        self.enqueue_req(conn)

    def _evict(self, arrival: Arrival | None) -> None:
        if arrival is not None:
            self._drop(arrival, NO_ROOM if arrival.stage is Stage.BODY else None)

    def _drop(self, arrival: Arrival, refusal: Refusal | None = None) -> None:
        self._forget(arrival)
        if refusal is not None:
            refuse(self.refusals, arrival.conn.sock, find_target(arrival.data), refusal)
        self._hang_up(arrival.conn)

    def _hang_up(self, conn: Any) -> None:
        self.nr_conns -= 1
        hang_up(conn.sock)
        del conn.arrival  # it knows the connection: both would wait for a look for cycles

    def _forget(self, arrival: Arrival) -> None:
        self.arrivals.remove(arrival)
        if arrival.is_watched:
            arrival.is_watched = False
            self.poller.unregister(arrival.conn.sock)

    def murder_pending(self) -> None:
        """Drop what did not arrive in time; called after every look at the connections."""
        super().murder_pending()
        now = time.monotonic()
        if now < self.looked_at + LOOK_SECONDS:
            return
        self.looked_at = now
        for conn in self.turns.find_overdue(now, self.cfg.threads // 2 - self.busy):
            self._begin_after_wait(conn)
        for arrival in [arrival for arrival in self.arrivals if arrival.deadline < now]:
            self._drop(arrival, TOO_SLOW if arrival.stage is Stage.BODY else None)

    def _cap_keepalive(self, deadline: float) -> None:
        """Give what is on its way a moment when the worker stops, and what waits nearly all of its grace."""
        super()._cap_keepalive(deadline)
        until = time.monotonic() + STOPPING_SECONDS
        for arrival in self.arrivals:
            arrival.deadline = min(arrival.deadline, until)
        wind_up_within(self.cfg.graceful_timeout, self.writer.shut_down)

    def finish_request(self, conn: Any, fs: Future[Any]) -> None:
        """Wait for the next request of a connection that was answered."""
        if self.is_tls:
            super().finish_request(conn, fs)
            return
        self.arrivals.handed_over_bytes -= conn.held_bytes
        self.busy -= 1
        self._begin_after_wait(self.turns.end(conn.sender, time.monotonic()))
        result = None if fs.cancelled() or fs.exception() is not None else fs.result()
        if isinstance(result, HeldConnection):
            self.writer.hold(result)
        else:
            self._go_on(conn, is_kept=bool(result))

    def _take_back(self, conn: Any, is_sent: bool) -> None:  # noqa: FBT001 (through gunicorn's queue)
        """Continue with a connection whose held answer is over; close it unless the answer and the body were whole."""
        is_kept = is_sent and getattr(conn.parser.mesg.body.reader, "length", None) == 0
        if is_kept:
            conn.arrival.take(conn.parser.unreader.take_buffered())
        self._go_on(conn, is_kept=is_kept)

    def _go_on(self, conn: Any, *, is_kept: bool) -> None:
        if not is_kept:
            self._hang_up(conn)
            return
        patience = {Stage.IDLE: self.keepalive_seconds, Stage.BODY: self.limits.small_body_seconds}
        self._gather(conn.arrival, patience.get(conn.arrival.stage, self.limits.head_seconds))
