"""gunicorn's response, changed to send head and body together.

Each send costs a system call and wakes the client, so one send is cheaper than two. This module overrides
private parts of gunicorn, which `tests/web/server/test_gunicorn_parts.py` names.
"""

from typing import Any

from gunicorn.http import wsgi  # type: ignore[import-untyped]

from web.server.connections import hang_up


class CoalescedResponse(wsgi.Response):  # type: ignore[misc]
    """gunicorn's response, which sends its head with the first piece of the body: one system call, one packet."""

    headers_sent: bool
    _head = b""
    _is_file = False

    def send_headers(self) -> None:
        """Buffer the head until the first piece of the body.

        The head of a file is sent immediately, because the kernel sends the file.
        """
        if self.headers_sent:
            return
        lines = [*self.default_headers(), *(f"{name}: {value}\r\n" for name, value in self.headers), "\r\n"]
        self._head = "".join(lines).encode("latin-1")
        self.headers_sent = True
        if self._is_file:
            self._emit(b"")

    def write_file(self, respiter: Any) -> None:
        """Send a file with `sendfile`, after the head."""
        self._is_file = True
        super().write_file(respiter)

    def close(self) -> None:
        """Send the end of the body, and the head if there was no body."""
        self.send_headers()
        self._emit(b"0\r\n\r\n" if self.chunked else b"")

    def _emit_body(self, data: bytes) -> None:
        self._emit(b"%X\r\n%b\r\n" % (len(data), data) if self.chunked else data)

    def _emit(self, data: bytes) -> None:
        head, self._head = self._head, b""
        if head or data:
            self.sock.sendall(head + data if head else data)


def send_response(application: Any, environ: dict[str, Any], response: Any, log: Any) -> bool:
    """Send the application's response. Return whether the connection can take another request.

    If the application fails after the head was sent, raises StopIteration, which makes gunicorn close the
    connection.
    """
    try:
        _send(application(environ, response.start_response), response)
    except OSError:
        raise  # The client is gone. gunicorn handles this error without a log line.
    except (Exception, SystemExit):  # gunicorn's master ends a stuck worker with SystemExit, so catch it too.
        if not response.headers_sent:
            raise
        # Close the connection: after the head, an error page would become part of the body.
        log.exception("Error handling request")
        hang_up(response.sock)
        raise StopIteration from None
    return not response.should_close()


def _send(pieces: Any, response: Any) -> None:
    """Send all pieces. Close them even after an error, as WSGI requires."""
    try:
        if isinstance(pieces, wsgi.FileWrapper):
            response.write_file(pieces)
        else:
            for piece in pieces:
                response.write(piece)
        response.close()
    finally:
        # Closing releases the request's slots, even if the client has hung up.
        if hasattr(pieces, "close"):
            pieces.close()
