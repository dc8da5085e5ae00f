"""An agent that runs elsewhere and answers, byte by byte, what a test wants."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Wire:
    """One connection of a scripted server: what was asked, and what is answered to it."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self.head, self.body = _read(connection)

    @property
    def path(self) -> str:
        return self.head.split(b" ")[1].decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def answer(self, status: int, document: Any, *headers: str) -> None:
        """Answer JSON, and nothing more."""
        body = json.dumps(document).encode()
        head = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        self.write("\r\n".join([*head, *headers, "", ""]).encode() + body)

    def begin_stream(self) -> None:
        self.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")

    def event(self, document: Any) -> None:
        self.write(f"data: {json.dumps(document)}\n\n".encode())

    def write(self, sent: bytes) -> None:
        self._socket.sendall(sent)


class ScriptedAgent:
    """A server whose every answer is a test's own function of the request."""

    def __init__(self, answer: Callable[[Wire], object]) -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.asked: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            try:
                wire = Wire(connection)
                self.asked.append(wire.path.partition("?")[0])
                self._answer(wire)
            except (OSError, IndexError):
                return  # the one who asked has gone


@contextmanager
def scripted_agent(answer: Callable[[Wire], object]) -> Iterator[ScriptedAgent]:
    """Run one within the block."""
    agent = ScriptedAgent(answer)
    try:
        yield agent
    finally:
        agent.close()


def _read(connection: socket.socket) -> tuple[bytes, bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        if not piece:
            raise OSError
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head, body


def begin_or_cancel(wire: Wire) -> bool:
    """Begin the stream of a task that works, or answer that it is canceled; tell which."""
    if is_cancel := wire.path.endswith(":cancel"):
        wire.answer(200, {"id": "t", "status": {"state": "TASK_STATE_CANCELED"}})
    else:
        wire.begin_stream()
        wire.event({"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}})
    return is_cancel


def hold(seconds: float = 30.0) -> None:
    """Say nothing for a while."""
    time.sleep(seconds)
