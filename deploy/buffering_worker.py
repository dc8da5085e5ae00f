"""gunicorn's threaded worker, in which a request costs a thread only once its head and a small body have arrived.

The accepting thread gathers what comes without blocking (`arrivals.py`). Bodies that are chunked, announced by
`Expect` or longer than `SMALL_BODY_BYTES` are left to the thread, which is given their head. Head and small body have
absolute deadlines; what is gathered is bounded, and shared among addresses. After an answer the connection waits for
its next request here again, together with what has come of it. An answer that waits (`shared/held_answers.py`) leaves
its thread and is sent by `answer_writer.py`. Requests of one credential take turns (`turns.py`).

TLS, which cannot be gathered before its handshake, stays with gunicorn's own ways. The private parts of gunicorn that
are touched here are named in `tests/deploy/test_gunicorn_parts.py`, and its version is pinned.
"""

import contextlib
import errno
import selectors
import socket
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar

from gunicorn.http import wsgi  # type: ignore[import-untyped]
from gunicorn.workers.gthread import TConn  # type: ignore[import-untyped]

from deploy.answer_writer import AnswerWriter
from deploy.arrivals import Arrival, Arrivals, Limits, Stage
from deploy.connections import hang_up, has_hung_up, is_readable
from deploy.held_connections import HeldConnection
from deploy.listeners import STOPPING_SECONDS, DrainingWorker, wind_up_within
from deploy.one_send import OneSend, answer
from deploy.refusals import NO_ROOM, TOO_LONG, TOO_SLOW, Refusal, find_target, refuse, unreadable, writer_of
from deploy.turns import Turns
from shared.admission import WAITED
from shared.held_answers import HOLD, HeldAnswer

LINGER_MILLISECONDS = 10
SPARE_SECONDS = 0.25
SPARE_PART = 8
"""A thread waits for its own answer so long, while no more than one in so many are busy: to hold costs more CPU."""
ACCEPTED_AT_ONCE = 64
SPARE_CONNECTIONS = 8
THREADS_PART = 4
"""One credential has one thread in so many at once: fewer than its tenant's share of them."""
LOOK_SECONDS = 0.25
PIECE_BYTES = 64 << 10
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class _Held(BaseException):
    """Leaves gunicorn's handling of a request, which catches every Exception, with an answer to be held."""

    def __init__(self, answer: HeldAnswer, response: Any) -> None:
        super().__init__()
        self.answer = answer
        self.response = response


class BufferingWorker(DrainingWorker):
    """The worker class of the front."""

    limits: ClassVar = Limits()
    send_seconds: ClassVar = 60.0

    def init_process(self) -> None:
        """Start to serve, in the worker's own process."""
        self.arrivals = Arrivals(self.limits)
        self.looked_at = time.monotonic()
        self.busy = 0
        self.thread = threading.local()
        # Read once: gunicorn looks a setting up in two mappings, three times for `is_ssl`.
        self.is_tls = bool(self.cfg.is_ssl)
        self.keepalive_seconds = float(self.cfg.keepalive)
        each = max(2, self.cfg.threads // THREADS_PART)
        self.spare_threads = max(1, self.cfg.threads // SPARE_PART)
        self.turns = Turns(each=each, patience_seconds=self.limits.turn_seconds)
        self.writer = AnswerWriter(
            partial(self.method_queue.defer, self._take_back), send_seconds=self.send_seconds
        )
        super().init_process()

    def load_wsgi(self) -> None:
        """Load the application, which may give answers to be held."""
        super().load_wsgi()
        self.refusals = writer_of(self.wsgi)
        if not self.is_tls:
            self.wsgi: Any = partial(self._call, self.wsgi)

    # In the accepting thread, which never blocks:

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
        wind_up_within(self.cfg.graceful_timeout, self.writer.wind_up)

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

    # In a thread:

    def handle(self, conn: Any) -> Any:
        """Answer the request that has arrived, and those that follow closely while nobody waits for a thread."""
        if self.is_tls:
            return super().handle(conn)
        self.thread.waited_seconds = time.monotonic() - conn.arrived_at
        while True:
            conn.data_ready = True
            conn.init()
            data = conn.arrival.hand_over()
            self.thread.target = find_target(data)
            conn.parser.unreader.unread(data)
            try:
                is_kept = super().handle(conn)
            except _Held as held:
                return HeldConnection(conn, held.response, held.answer)
            if not is_kept:
                return False
            conn.arrival.take(conn.parser.unreader.take_buffered())
            if not self._follows(conn):
                return True
            self.thread.waited_seconds = 0.0

    def write_error(self, sock: socket.socket, status: int, reason: str, message: str) -> None:  # noqa: ARG002
        """Refuse in the dialect of its path what gunicorn cannot read, for which it would write a page."""
        refuse(self.refusals, sock, getattr(self.thread, "target", ""), unreadable(status))

    def handle_request(self, req: Any, conn: Any) -> bool:
        """Answer a request as gunicorn does, without its hooks and access log; tell whether the connection goes on."""
        asked = (req, conn.sock, conn.client, conn.server, self.cfg)
        response, environ = wsgi.create(*asked, response_class=OneSend)
        environ["wsgi.multithread"] = True
        self.nr += 1
        if self.nr >= self.max_requests:
            self.alive: bool = False
        if not (self.alive and self.keepalive_seconds):
            response.force_close()
        return answer(self.wsgi, environ, response, self.log)

    def _call(self, application: Any, environ: dict[str, Any], start_response: Any) -> Any:
        environ[HOLD] = self._spare_seconds
        environ[WAITED] = self.thread.waited_seconds
        answer = application(environ, start_response)
        if isinstance(answer, HeldAnswer):
            raise _Held(answer, start_response.__self__)
        return answer

    def _spare_seconds(self) -> float:
        """Tell how long a thread may wait for its own answer before it is held: a moment, while few are busy."""
        return SPARE_SECONDS if self.busy <= self.spare_threads and self.alive else 0.0

    @property
    def _is_wanted(self) -> bool:
        """Whether somebody waits for a thread, or for the worker's end."""
        return self.tpool._work_queue.qsize() > 0 or not self.alive  # noqa: SLF001 (nobody else knows)

    def _follows(self, conn: Any) -> bool:
        """Wait a moment for the next request: to hand a connection back costs an eighth of what a model call does."""
        if self._is_wanted:
            return False
        if conn.arrival.stage is not Stage.WHOLE and is_readable(conn.sock, LINGER_MILLISECONDS):
            with contextlib.suppress(OSError):
                conn.arrival.take(conn.sock.recv(PIECE_BYTES, socket.MSG_DONTWAIT))
        return bool(conn.arrival.stage is Stage.WHOLE)
