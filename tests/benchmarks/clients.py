"""A light HTTP client for one machine: raw sockets kept alive, prepared requests, minimal parsing.

The generator shares the machine with the product, so it must cost little: files are sent by sendfile, responses are
read into one buffer, and one thread with a selector serves many clients.
"""

import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

BUFFER_BYTES = 1 << 20
BOUNDARY = b"quartermaster-benchmark"


class RequestFailed(Exception):
    """A response differs from what the benchmark expects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One response. `first_byte_seconds` and `seconds` count from just before the end of its request was sent."""

    status: int
    head: bytes
    body: bytes
    byte_size: int
    first_byte_seconds: float
    seconds: float


class Connection:
    """One kept-alive connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    def ask(self, request: bytes, *, expect: int) -> Answer:
        """Send a request and read the whole response. Only the first buffer of the body is kept."""
        return self._read(request, expect)

    def send_file(self, head: bytes, file: BinaryIO, tail: bytes, *, expect: Sequence[int]) -> Answer:
        """Send a request whose body is a file between a head and a tail."""
        file.seek(0)
        self._socket.sendall(head)
        self._socket.sendfile(file)
        return self._read(tail, *expect)

    def close(self) -> None:
        self._socket.close()

    def _read(self, end_of_request: bytes, *expect: int) -> Answer:
        # Before the bytes are sent: the server may respond before this process runs again.
        sent_at = time.perf_counter()
        self._socket.sendall(end_of_request)
        filled = self._socket.recv_into(self._buffer)
        first_byte_at = time.perf_counter()
        while (end := bytes(self._buffer[:filled]).find(b"\r\n\r\n")) < 0:
            filled += self._receive(self._buffer[filled:])
        head, body = bytes(self._buffer[:end]), bytes(self._buffer[end + 4 : filled])
        status = int(head[9:12])
        if status not in expect:
            raise RequestFailed(f"{head.decode()}\n{body[:500].decode(errors='replace')}")
        size = content_length(head)
        read = len(body)
        while read < size:
            count = self._receive(self._buffer)
            if read + count <= BUFFER_BYTES:
                body += bytes(self._buffer[:count])
            read += count
        return Answer(
            status=status,
            head=head,
            body=body,
            byte_size=read,
            first_byte_seconds=first_byte_at - sent_at,
            seconds=time.perf_counter() - sent_at,
        )

    def _receive(self, buffer: memoryview) -> int:
        count = self._socket.recv_into(buffer)
        if not count:
            raise RequestFailed("the server closed the connection")
        return count


def run_clients(port: int, requests: Iterator[bytes], *, clients: int, expect: int) -> float:
    """Send the requests with this many clients. Return the seconds taken.

    Each client waits for its response before its next request.
    """
    started_at = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for _ in range(clients):
            if (request := next(requests, None)) is None:
                break
            connection = socket.create_connection(("127.0.0.1", port), timeout=60)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(request)
            selector.register(connection, selectors.EVENT_READ, bytearray())
        while selector.get_map():
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                if _is_answered(key.fileobj, key.data, expect):
                    key.data.clear()
                    if (request := next(requests, None)) is not None:
                        key.fileobj.sendall(request)
                    else:
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
    return time.perf_counter() - started_at


def content_length(head: bytes) -> int:
    """Return the content length from a response's head."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    if head[9:12] in (b"201", b"204"):
        return 0
    raise RequestFailed(f"an answer without its length: {head.decode()}")


def multipart_frame(file_name: str = "content.bin") -> tuple[bytes, bytes]:
    """Return the bytes before and after the content of a one-part body."""
    disposition = f'Content-Disposition: form-data; name="file"; filename="{file_name}"'.encode()
    head = b"--" + BOUNDARY + b"\r\n" + disposition + b"\r\nContent-Type: application/octet-stream\r\n\r\n"
    return head, b"\r\n--" + BOUNDARY + b"--\r\n"


def request_head(method: str, path: str, *, length: int = 0, **headers: str) -> bytes:
    """Return a request's head. Underscores in header names stand for hyphens."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items()),
    ]
    if length or method in ("PUT", "POST"):
        lines.append(f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _is_answered(connection: socket.socket, received: bytearray, expect: int) -> bool:
    piece = connection.recv(1 << 16)
    if not piece:
        raise RequestFailed("the server closed the connection")
    received += piece
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = bytes(received[:end])
    if len(received) < end + 4 + content_length(head):
        return False
    if int(head[9:12]) != expect:
        raise RequestFailed(bytes(received).decode(errors="replace"))
    return True
