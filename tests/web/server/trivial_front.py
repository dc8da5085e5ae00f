"""A real gunicorn with the web process's settings and a trivial application, used through raw sockets."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded.ports import find_free_port
from deploy.process_types import GUNICORN_SETTINGS

ROOT = Path(__file__).parents[3]
APPLICATION = """
import pathlib, time

HERE = pathlib.Path(__file__).parent

def endless():
    try:
        while True:
            yield bytes(1 << 16)
    finally:
        (HERE / "ended").touch()

def application(environ, start_response):
    if environ["PATH_INFO"] == "/endless":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return endless()
    if environ["PATH_INFO"] == "/slow":
        (HERE / "begun").touch()
        time.sleep(2)
    body = environ["wsgi.input"].read() or b"ok"
    start_response("200 OK", [("Content-Length", str(len(body))), ("Content-Type", "text/plain")])
    return [body]
"""


@dataclass(frozen=True, kw_only=True)
class TrivialFront:
    """A running server; `connect` to it from any loopback address."""

    port: int
    directory: Path
    process: subprocess.Popen[bytes]

    def connect(self, sent: bytes = b"", *, address: str = "127.0.0.1") -> socket.socket:
        connection = socket.create_connection(
            ("127.0.0.1", self.port), timeout=60, source_address=(address, 0)
        )
        connection.sendall(sent)
        return connection

    def ask(
        self, request: bytes = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", *, address: str = "127.0.0.1"
    ) -> bytes:
        """Send one request on its own connection. Return the body of the response."""
        with self.connect(request, address=address) as connection:
            return read_answer(connection)[1]


@contextlib.contextmanager
def trivial_front(directory: Path, application: str = APPLICATION, **settings: str) -> Iterator[TrivialFront]:
    """Run the server, with two threads in one process unless `settings` differ."""
    (directory / "trivial.py").write_text(application)
    environment = {**os.environ, "PORT": str(find_free_port()), "WEB_PROCESSES": "1", "WEB_THREADS": "2"}
    environment |= {"PYTHONPATH": f"{directory}{os.pathsep}{ROOT}", **settings}
    port = int(environment["PORT"])
    command = [sys.executable, "-m", "gunicorn", "--config", str(GUNICORN_SETTINGS), "trivial:application"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) as server:
        try:
            _wait_for(port)
            yield TrivialFront(port=port, directory=directory, process=server)
        finally:
            server.terminate()


def post(body: bytes, *, length: int | None = None, path: bytes = b"/") -> bytes:
    """Return a request with this body and this declared length."""
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
        path,
        len(body) if length is None else length,
        body,
    )


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    """Read one response with a declared length. Return its status and body, and leave further bytes unread."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = connection.recv(1)
        assert piece, head
        head += piece
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body = b""
    while len(body) < length:
        piece = connection.recv(length - len(body))
        assert piece, body
        body += piece
    return int(head[9:12]), body


def is_hung_up(connection: socket.socket) -> bool:
    """Wait until the server has closed the connection without sending anything."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@contextlib.contextmanager
def many_files(wanted: int) -> Iterator[None]:
    """Allow this process so many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError("gunicorn did not start")
