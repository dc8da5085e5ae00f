"""The worker class of a web process: its threads answer the requests that `accept_thread.py` has read.

A thread reads the body itself if it is chunked, announced by `Expect`, or longer than `SMALL_BODY_BYTES`. For
such a request, `accept_thread.py` reads only the head. A deferred response
(`shared/runtime/deferred_responses.py`) leaves its thread, and `response_writer.py` sends it.
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
from web.server.accept_thread import PIECE_BYTES, AcceptingWorker
from web.server.coalesced_response import CoalescedResponse, send_response
from web.server.connections import is_readable
from web.server.early_responses import find_target, refuse, unreadable
from web.server.request_reader import Stage
from web.server.response_writer import DeferredConnection

# A thread waits this long for the next request of its connection, before it returns the connection.
LINGER_MILLISECONDS = 10
# A thread waits this long for its own response before deferring it, because deferring costs more CPU.
SPARE_SECONDS = 0.25
# Threads wait for their own responses only while at most one thread in this many is busy.
SPARE_THREADS_DIVISOR = 8


class _DeferResponse(BaseException):
    """Carries a deferred response out of gunicorn's request handling, which catches every Exception."""

    def __init__(self, answer: DeferredResponse, response: Any) -> None:
        super().__init__()
        self.answer = answer
        self.response = response


class BufferingWorker(AcceptingWorker):
    """gunicorn's worker, changed: its threads answer complete requests, and a deferred response frees its thread."""

    def init_process(self) -> None:
        """Set up the worker in its own process, and serve requests."""
        self.thread = threading.local()
        self.spare_threads = max(1, self.cfg.threads // SPARE_THREADS_DIVISOR)
        super().init_process()

    def load_wsgi(self) -> None:
        """Load the application. Let the application defer responses, unless the connections use TLS."""
        super().load_wsgi()
        if not self.is_tls:
            self.wsgi: Any = partial(self._call, self.wsgi)

    def handle(self, conn: Any) -> Any:
        """Answer the request of a connection.

        Also answer its next requests, if they arrive soon and no other request needs the thread.
        Return a DeferredConnection, or whether the connection can be kept.
        """
        if self.is_tls:
            return super().handle(conn)
        self.thread.waited_seconds = time.monotonic() - conn.arrived_at
        while True:
            # Without this, gunicorn would wait for the socket, although the bytes have been read already.
            conn.data_ready = True
            conn.init()
            data = conn.incoming.take_all()
            # The target is needed only if gunicorn cannot parse the request: the error format depends on its
            # path.
            self.thread.target = find_target(data)
            conn.parser.unreader.unread(data)
            try:
                is_kept = super().handle(conn)
            except _DeferResponse as held:
                return DeferredConnection(conn, held.response, held.answer)
            if not is_kept:
                return False
            conn.incoming.receive(conn.parser.unreader.take_buffered())
            if not self._has_next_request(conn):
                return True
            # The next request of this connection did not wait in the queue, so its waiting time is 0.
            self.thread.waited_seconds = 0.0

    def write_error(self, sock: socket.socket, status: int, reason: str, message: str) -> None:  # noqa: ARG002
        """Refuse a request that gunicorn cannot parse.

        The response has the error format of the request's path, and is not gunicorn's page.
        """
        refuse(self.refusal_writer, sock, getattr(self.thread, "target", ""), unreadable(status))

    def handle_request(self, req: Any, conn: Any) -> bool:
        """Answer a request as gunicorn does, but without hooks and access log.

        Return whether the connection can be kept.
        """
        asked = (req, conn.sock, conn.client, conn.server, self.cfg)
        response, environ = wsgi.create(*asked, response_class=CoalescedResponse)
        environ["wsgi.multithread"] = True
        self.nr += 1
        if self.nr >= self.max_requests:
            self.alive: bool = False
        # A draining worker ends connections, so that clients reconnect to another process.
        if not (self.alive and self.keepalive_seconds):
            response.force_close()
        return send_response(self.wsgi, environ, response, self.log)

    def _call(self, application: Any, environ: dict[str, Any], start_response: Any) -> Any:
        environ[THREAD_WAIT] = self._spare_seconds
        environ[WAITED] = self.thread.waited_seconds
        answer = application(environ, start_response)
        if isinstance(answer, DeferredResponse):
            # Leave by an exception: gunicorn would iterate over the response in this thread.
            raise _DeferResponse(answer, start_response.__self__)
        return answer

    def _spare_seconds(self) -> float:
        """Return how many seconds a thread may wait for its own response before deferring it.

        Return 0 if many threads are busy.
        """
        return SPARE_SECONDS if self.busy <= self.spare_threads and self.alive else 0.0

    @property
    def _is_thread_needed(self) -> bool:
        """Whether a request waits for a thread or the worker is stopping."""
        return self.tpool._work_queue.qsize() > 0 or not self.alive  # noqa: SLF001 (there is no public accessor)

    def _has_next_request(self, conn: Any) -> bool:
        """Wait briefly for the next request, and return whether it has arrived.

        Handing the connection back costs an eighth of a model call's CPU time.
        """
        if self._is_thread_needed:
            return False
        if conn.incoming.stage is not Stage.COMPLETE and is_readable(conn.sock, LINGER_MILLISECONDS):
            with contextlib.suppress(OSError):
                conn.incoming.receive(conn.sock.recv(PIECE_BYTES, socket.MSG_DONTWAIT))
        return bool(conn.incoming.stage is Stage.COMPLETE)
