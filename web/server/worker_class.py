"""The worker class of the front: in its threads, the requests that `accept_thread.py` has gathered are answered.

Bodies that are chunked, announced by `Expect` or longer than `SMALL_BODY_BYTES` are left to the thread, which is given
their head. An answer that waits (`shared/runtime/deferred_responses.py`) leaves its thread and is sent by
`response_writer.py`.
"""

import contextlib
import socket
import threading
import time
from functools import partial
from typing import Any

from gunicorn.http import wsgi  # type: ignore[import-untyped]

from shared.fairness.admission import WAITED
from shared.runtime.deferred_responses import THREAD_WAIT, DeferredResponse
from web.server.accept_thread import PIECE_BYTES, GatheringWorker
from web.server.coalesced_response import CoalescedResponse, answer
from web.server.connections import is_readable
from web.server.deferred_connections import HeldConnection
from web.server.early_responses import find_target, refuse, unreadable
from web.server.request_reader import Stage

LINGER_MILLISECONDS = 10
SPARE_SECONDS = 0.25
SPARE_PART = 8
"""A thread waits for its own answer so long, while no more than one in so many are busy: to hold costs more CPU."""


class _Held(BaseException):
    """Leaves gunicorn's handling of a request, which catches every Exception, with an answer to be held."""

    def __init__(self, answer: DeferredResponse, response: Any) -> None:
        super().__init__()
        self.answer = answer
        self.response = response


class BufferingWorker(GatheringWorker):
    """Answers requests in threads, and lets an answer that waits leave its own."""

    def init_process(self) -> None:
        """Start to serve, in the worker's own process."""
        self.thread = threading.local()
        self.spare_threads = max(1, self.cfg.threads // SPARE_PART)
        super().init_process()

    def load_wsgi(self) -> None:
        """Load the application, which may give answers to be held."""
        super().load_wsgi()
        if not self.is_tls:
            self.wsgi: Any = partial(self._call, self.wsgi)

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
        response, environ = wsgi.create(*asked, response_class=CoalescedResponse)
        environ["wsgi.multithread"] = True
        self.nr += 1
        if self.nr >= self.max_requests:
            self.alive: bool = False
        if not (self.alive and self.keepalive_seconds):
            response.force_close()
        return answer(self.wsgi, environ, response, self.log)

    def _call(self, application: Any, environ: dict[str, Any], start_response: Any) -> Any:
        environ[THREAD_WAIT] = self._spare_seconds
        environ[WAITED] = self.thread.waited_seconds
        answer = application(environ, start_response)
        if isinstance(answer, DeferredResponse):
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
