"""An agent served on its own port, and messages to it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import uvicorn

from quartermaster._events import EventReader
from quartermaster.agents import Agent

PATIENCE_SECONDS = 90.0


@dataclass(frozen=True)
class Served:
    """A running agent; every request has `headers`."""

    url: str
    headers: Mapping[str, str]

    def ask(self, method: str, path: str, *, headers: Any = None, **more: Any) -> httpx.Response:
        """Send a request, and return the response."""
        given = {**self.headers} if headers is None else headers
        return httpx.request(method, self.url + path, headers=given, timeout=PATIENCE_SECONDS, **more)

    def send(self, text: str = "hello", *, more: Any = None, headers: Any = None) -> Any:
        """Send a message over HTTP+JSON, and return the task."""
        response = self.ask("POST", "/message:send", json=message(text, **(more or {})), headers=headers)
        assert response.status_code == 200, response.text
        return response.json()["task"]

    def call(self, method: str, params: Any, *, headers: Any = None) -> Any:
        """Call a method over JSON-RPC, and return the response's body."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.ask("POST", "/", json=body, headers=headers).json()

    def stream(self, text: str = "hello", *, more: Any = None, headers: Any = None) -> list[Any]:
        """Send a message, and return all events of its stream."""
        given = {**self.headers, **(headers or {})}
        with httpx.stream(
            "POST",
            f"{self.url}/message:stream",
            json=message(text, **(more or {})),
            headers=given,
            timeout=PATIENCE_SECONDS,
        ) as response:
            reader = EventReader()
            return [event for piece in response.iter_bytes() for event in reader.feed(piece)]


def message(text: str, *, parts: Any = None, configuration: Any = None, **members: Any) -> dict[str, Any]:
    """Return the body of a request that sends a message."""
    said = {
        "messageId": str(uuid4()),
        "role": "ROLE_USER",
        "parts": [{"text": text}] if parts is None else parts,
        **members,
    }
    return {"message": said, **({"configuration": configuration} if configuration else {})}


def text_of(task: Any) -> str:
    """Return the text of a task's artifacts."""
    parts = (part for artifact in task.get("artifacts", ()) for part in artifact["parts"])
    return "".join(part.get("text", "") for part in parts)


def status_text(task: Any) -> str:
    """Return the text of the message in a task's status."""
    return str(task["status"]["message"]["parts"][0]["text"])


@contextmanager
def served(agent: Agent, headers: Mapping[str, str] | None = None, **more: Any) -> Iterator[Served]:
    """Serve an agent during the block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = uvicorn.Config(
        agent.app(**more),
        host="127.0.0.1",
        port=port,
        log_level="warning",
        timeout_graceful_shutdown=5,
        ws="none",
    )
    server = uvicorn.Server(config)
    running = threading.Thread(target=server.run)
    running.start()
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield Served(f"http://127.0.0.1:{port}", headers or {})
    finally:
        server.should_exit = True
        running.join(PATIENCE_SECONDS)
