"""A server that sends exactly the bytes that a test specifies, and records its requests."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

Answer = Callable[[socket.socket], None]
PAUSE_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Server:
    """Listens on loopback; a path that has no answer is answered 404."""

    port: int
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0

    def url(self, path: str = "/", *, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def on(self, path: str, answer: Answer) -> None:
        self.answers[path] = answer

    def headers_at(self, path: str) -> Mapping[str, str]:
        (asked,) = (asked for asked in self.asked if asked.path == path)
        return asked.headers


@pytest.fixture
def server() -> Iterator[Server]:
    """Listen for one test: of its requests one may arrive after its client gave up, and no other test counts it."""
    with serve() as server:
        yield server


@contextlib.contextmanager
def serve_at_one_port(*addresses: str) -> Iterator[tuple[Server, ...]]:
    """Listen at the same port of several addresses, of which another process may have taken one."""
    while True:
        with contextlib.ExitStack() as listening:
            servers = [listening.enter_context(serve(address=addresses[0]))]
            try:
                for address in addresses[1:]:
                    servers.append(listening.enter_context(serve(address=address, port=servers[0].port)))
            except OSError:
                continue
            yield tuple(servers)
            return


@contextlib.contextmanager
def serve(
    context: ssl.SSLContext | None = None, *, address: str = "127.0.0.1", port: int = 0
) -> Iterator[Server]:
    """Listen until the context ends."""
    listener = socket.create_server((address, port))
    server = Server(port=listener.getsockname()[1])
    open_sockets: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            server.connections += 1
            open_sockets.append(connection)
            threading.Thread(target=_converse, args=(server, connection, context), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in open_sockets:
            connection.close()


def say(head: str, body: bytes = b"") -> Answer:
    """Answer with these lines and bytes as they stand, and close."""
    return lambda connection: connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)


def content(body: bytes, *headers: str, status: str = "200 OK") -> Answer:
    """Answer properly."""
    return say("\n".join((f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers)), body)


def redirect(location: str, *headers: str, status: str = "302 Found") -> Answer:
    return content(b"", f"Location: {location}", *headers, status=status)


def drip(head: bytes, piece: bytes) -> Answer:
    """Respond with a head, and then with a few bytes at short intervals until the client closes."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        pause = threading.Event()
        while not pause.wait(PAUSE_SECONDS):
            connection.sendall(piece)

    return answer


def endless(head: bytes, piece: bytes) -> Answer:
    """Respond with a head, and then with data as fast as the client reads."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)

    return answer


def silence(head: bytes = b"") -> Answer:
    """Answer with a head and then nothing, until the other side hangs up."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        connection.recv(1)

    return answer


def _converse(server: Server, connection: socket.socket, context: ssl.SSLContext | None) -> None:
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        if context is not None:
            connection = context.wrap_socket(connection, server_side=True)
        stack.enter_context(contextlib.closing(connection))
        asked = _read(connection)
        if asked is not None:
            server.asked.append(asked)
            server.answers.get(asked.path, content(b"", status="404 Not Found"))(connection)


def _read(connection: socket.socket) -> Asked | None:
    received = b""
    while b"\r\n\r\n" not in received:
        more = connection.recv(65536)
        if not more:
            return None
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    method, path, _ = first.split(" ", 2)
    return Asked(method=method, path=path, headers=headers, body=body)
