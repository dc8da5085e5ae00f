"""What the front's server refuses by itself, before the application hears of it.

The application writes these answers (`extensions["error_dialects"]`), so that clients read each in its path's dialect.
"""

import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not served."""

    status: int
    code: str
    detail: str


TOO_SLOW = Refusal(408, "upload_timeout", "The body was sent too slowly; send it again.")
TOO_LONG = Refusal(431, "malformed_request", "The request's head is too long.")
NO_ROOM = Refusal(429, "concurrency_limit", "Too much is being received from this address; try again.")
FAILED = Refusal(500, "internal_error", "The service failed.")
_DETAILS = {
    403: "The request is not accepted.",
    414: "The request's line is too long.",
    417: "The request expects what is not done here.",
    431: TOO_LONG.detail,
    501: "This transfer coding is not understood.",
}
_REQUEST_LINE = re.compile(rb"(?:\r?\n)*[!-~]+ ([!-~]+)")


class Writer(Protocol):
    """Writes the whole answer to a request for a target."""

    def refuse(self, target: str, status: int, code: str, detail: str) -> bytes:
        """Write it, with its head."""


class PlainWriter:
    """Stands in for an application that has no dialects: a head alone."""

    def refuse(self, target: str, status: int, code: str, detail: str) -> bytes:  # noqa: ARG002 (the port's)
        """Write the status."""
        return f"HTTP/1.1 {status} Refused\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()


def writer_of(application: Any) -> Writer:
    """Give what writes refusals for an application."""
    writer: Writer = getattr(application, "extensions", {}).get("error_dialects") or PlainWriter()
    return writer


def refuse(writer: Writer, sock: socket.socket, target: str, refusal: Refusal) -> None:
    """Send a refusal as far as the connection takes it at once: no client is waited for."""
    answer = writer.refuse(target, refusal.status, refusal.code, refusal.detail)
    with suppress(OSError):
        sock.send(answer, socket.MSG_DONTWAIT)


def unreadable(status: int) -> Refusal:
    """Describe what gunicorn refuses with this status while it reads a request, or fails with."""
    if status == FAILED.status:
        return FAILED
    return Refusal(status, "malformed_request", _DETAILS.get(status, "The request is malformed."))


def find_target(head: bytes | bytearray) -> str:
    """Find what a request asks for in as much of its head as there is; nothing where that cannot be told."""
    found = _REQUEST_LINE.match(head)
    return found[1].decode("ascii") if found else ""
