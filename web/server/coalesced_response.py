"""gunicorn's response, whose head and body leave in one send: each send costs a system call and wakes the client.

The private parts of gunicorn that are touched here are named in `tests/web/server/test_gunicorn_parts.py`.
"""

from typing import Any

from gunicorn.http import wsgi  # type: ignore[import-untyped]

from web.server.connections import hang_up


class CoalescedResponse(wsgi.Response):  # type: ignore[misc]
    """gunicorn's response, whose head leaves together with the first piece of the body: one system call, one packet."""

    headers_sent: bool
    _head = b""
    _is_file = False

    def send_headers(self) -> None:
        """Keep the head for the first piece; a file's leaves at once, as the kernel sends what follows."""
        if self.headers_sent:
            return
        lines = [*self.default_headers(), *(f"{name}: {value}\r\n" for name, value in self.headers), "\r\n"]
        self._head = "".join(lines).encode("latin-1")
        self.headers_sent = True
        if self._is_file:
            self._emit(b"")

    def write_file(self, respiter: Any) -> None:
        """Send a file."""
        self._is_file = True
        super().write_file(respiter)

    def close(self) -> None:
        """Send the end, and a head that no body has followed."""
        self.send_headers()
        self._emit(b"0\r\n\r\n" if self.chunked else b"")

    def _emit_body(self, data: bytes) -> None:
        self._emit(b"%X\r\n%b\r\n" % (len(data), data) if self.chunked else data)

    def _emit(self, data: bytes) -> None:
        head, self._head = self._head, b""
        if head or data:
            self.sock.sendall(head + data if head else data)


def answer(application: Any, environ: dict[str, Any], response: Any, log: Any) -> bool:
    """Send what the application answers; tell whether the connection can take another request."""
    try:
        _send(application(environ, response.start_response), response)
    except OSError:
        raise
    except (Exception, SystemExit):  # the latter where the master gives this worker up
        if not response.headers_sent:
            raise
        # What has begun can only be broken off: an error page would become a part of it.
        log.exception("Error handling request")
        hang_up(response.sock)
        raise StopIteration from None
    return not response.should_close()


def _send(pieces: Any, response: Any) -> None:
    """Send an answer to its end, and close it whatever happens."""
    try:
        if isinstance(pieces, wsgi.FileWrapper):
            response.write_file(pieces)
        else:
            for piece in pieces:
                response.write(piece)
        response.close()
    finally:
        if hasattr(pieces, "close"):
            pieces.close()
