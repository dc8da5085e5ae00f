"""Agents that run elsewhere: a genuine server in a process of its own, and one that answers what a test wants."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from tests.support.stack import free_port, wait_until

ROOT = Path(__file__).parents[4]


class GenuineAgent:
    """a2a-sdk's server (`tests/support/remote_agent.py`), which can be killed and started again at its address."""

    def __init__(self, *, database_url: str | None = None) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._arguments = [str(self.port)] + ([database_url] if database_url else [])
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "tests.support.remote_agent", *self._arguments]
        self._process = subprocess.Popen(command, cwd=ROOT)
        wait_until(self._answers, "the agent", seconds=60)

    def kill(self) -> None:
        """End it without a chance to say anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def seen(self) -> list[dict[str, Any]]:
        """The heads of the requests since it was started."""
        found: list[dict[str, Any]] = requests.get(f"{self.url}/seen", timeout=10).json()
        return found

    def sent(self) -> list[dict[str, Any]]:
        """Those that sent a message."""
        return [head for head in self.seen() if "idempotency-key" in head["headers"]]

    def received(self, after: int) -> list[str]:
        """The turns whose messages it was sent."""
        return [head["headers"]["idempotency-key"] for head in self.sent()[after:]]

    def state_of(self, task_id: str) -> str:
        """Ask it for the state of a task."""
        task = requests.get(f"{self.url}/tasks/{task_id}", headers={"A2A-Version": "1.0"}, timeout=10).json()
        return str(task["status"]["state"])

    def wait_for_a_task(self) -> None:
        """Wait until it has one."""
        headers = {"A2A-Version": "1.0"}
        wait_until(
            lambda: requests.get(f"{self.url}/tasks", headers=headers, timeout=5).json()["tasks"],
            "a task of the agent",
        )

    def _answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/seen", timeout=5).ok
        except requests.RequestException:
            return False


@contextmanager
def genuine_agent(**options: Any) -> Iterator[GenuineAgent]:
    """Run one within the block."""
    agent = GenuineAgent(**options)
    agent.start()
    try:
        yield agent
    finally:
        agent.kill()


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


def hold(seconds: float = 30.0) -> None:
    """Say nothing for a while."""
    time.sleep(seconds)
