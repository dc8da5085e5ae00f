"""Refusals that the server sends by itself, before the application sees the request.

The application renders the refusals (`extensions["error_dialects"]`), so each client gets the error format of
its path.
"""

import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Refusal:
    """The status, code and detail of a refused request."""

    status: int
    code: str
    detail: str


TOO_SLOW = Refusal(408, "upload_timeout", "The body arrived too slowly. Send the request again.")
TOO_LONG = Refusal(431, "malformed_request", "The request's head is too long.")
NO_ROOM = Refusal(
    429,
    "concurrency_limit",
    "This address has too many unfinished requests. Retry after some of them have ended.",
)
FAILED = Refusal(500, "internal_error", "The service failed.")
_DETAILS = {
    403: "The request is not accepted.",
    414: "The request line is too long.",
    417: "This expectation is not supported.",
    431: TOO_LONG.detail,
    501: "This transfer coding is not supported.",
}
_REQUEST_LINE = re.compile(rb"(?:\r?\n)*[!-~]+ ([!-~]+)")


class RefusalWriter(Protocol):
    """Renders the complete response to a refused request."""

    def refuse(self, target: str, status: int, code: str, detail: str) -> bytes:
        """Return the bytes of the response, including the head."""


class PlainRefusalWriter:
    """Renders only a status line and a head, for an application without error formats."""

    def refuse(self, target: str, status: int, code: str, detail: str) -> bytes:  # noqa: ARG002 (the port's)
        """Return the status line and a minimal head."""
        return f"HTTP/1.1 {status} Refused\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()


def find_refusal_writer(application: Any) -> RefusalWriter:
    """Return the application's writer of refusals.

    If the application has none, return a writer of plain refusals.
    """
    writer: RefusalWriter = (
        getattr(application, "extensions", {}).get("error_dialects") or PlainRefusalWriter()
    )
    return writer


def refuse(writer: RefusalWriter, sock: socket.socket, target: str, refusal: Refusal) -> None:
    """Send as much of a refusal as the socket takes without waiting: the server never waits for a client."""
    answer = writer.refuse(target, refusal.status, refusal.code, refusal.detail)
    with suppress(OSError):
        # A refusal is short, so it fits the socket's buffer unless the client does not read.
        sock.send(answer, socket.MSG_DONTWAIT)


def unreadable(status: int) -> Refusal:
    """Return the refusal for the status that gunicorn sends when it cannot parse a request, or when it fails."""
    if status == FAILED.status:
        return FAILED
    return Refusal(status, "malformed_request", _DETAILS.get(status, "The request is malformed."))


def find_target(head: bytes | bytearray) -> str:
    """Return the request target in a possibly incomplete head, or an empty string if there is none."""
    found = _REQUEST_LINE.match(head)
    return found[1].decode("ascii") if found else ""
