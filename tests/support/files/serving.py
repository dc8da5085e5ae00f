"""Run the test application under a real gunicorn, and talk to it on raw sockets."""

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.files.bodies import CONTENT_TYPE


@contextmanager
def gunicorn(*, threads: int = 4, **environment: str) -> Iterator[int]:
    """Serve the test application with one worker process; return its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        command = [sys.executable, "-m", "gunicorn", "-k", "gthread", "--threads", str(threads)]
        command += ["--bind", f"fd://{listener.fileno()}", "--no-control-socket", "--log-level", "warning"]
        process = subprocess.Popen(
            [*command, "tests.support.files.application:application"],
            pass_fds=[listener.fileno()],
            env={**os.environ, **environment},
        )
        try:
            port = listener.getsockname()[1]
            wait_until_up(port)
            yield port
        finally:
            process.terminate()
            process.wait(60)


def wait_until_up(port: int) -> None:
    for _ in range(600):
        try:
            if ask(port, "/").status == 200:
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("gunicorn did not start")


@dataclass(frozen=True)
class Reply:
    """A complete response."""

    status: int
    headers: dict[str, str]
    body: bytes


def ask(port: int, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> Reply:
    """Send one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return Reply(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def begin_upload(port: int, content_length: int | None, query: str = "") -> socket.socket:
    """Open a connection and send the head of an upload; None announces chunks."""
    length = "Transfer-Encoding: chunked" if content_length is None else f"Content-Length: {content_length}"
    head = f"POST /upload{query} HTTP/1.1\r\nHost: x\r\nContent-Type: {CONTENT_TYPE}\r\n{length}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(head.encode())
    return connection


def read_reply(connection: socket.socket) -> Reply:
    """Return one response of a raw connection."""
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        return Reply(response.status, dict(response.getheaders()), response.read())
    finally:
        response.close()
