"""A client of model calls that reads streams byte by byte, each over a connection of its own."""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests

from tests.support.models.model_service import ModelService
from tests.support.models.upstream_scripts import DIRECTIVE
from tests.support.processes.stack import Service

PIECE = "abc "
"""Four bytes, which an estimate counts as one token."""
TIMEOUT_SECONDS = 90.0


def scripted(**script: Any) -> str:
    """Return a prompt that makes the fake upstream follow this script."""
    return DIRECTIVE + json.dumps({"piece": PIECE, **script})


def body_of(text: str, *, model: str = "fake/chat", stream: bool = True) -> dict[str, Any]:
    """Return the body of a chat completion."""
    return {"model": model, "stream": stream, "messages": [{"role": "user", "content": text}]}


def ask(
    service: ModelService, text: str, *, front: Service | None = None, **fields: Any
) -> requests.Response:
    """Send a call, and wait for the whole response."""
    return requests.post(
        f"{(front or service.front).url}/v1/chat/completions",
        json=body_of(text, stream=False, **fields),
        headers={"Authorization": f"Bearer {service.api_key}"},
        timeout=TIMEOUT_SECONDS,
    )


@contextmanager
def waiting(
    service: ModelService, text: str, *, stream: bool, front: Service | None = None
) -> Iterator[socket.socket]:
    """Send a request; the block reads the response, and the client disconnects at its end."""
    content = json.dumps(body_of(text, stream=stream)).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {service.api_key}\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", (front or service.front).port or 0))
        connection.sendall(head.encode() + content)
        yield connection


class Listener:
    """A streamed response that is being read."""

    def __init__(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        self.connection = connection
        self.answer = answer
        self.lines: list[str] = []

    def read_until(self, text: str) -> None:
        """Read until a line contains this text."""
        for line in self._coming():
            if text in line:
                return
        raise AssertionError(f"the stream ended without {text!r}: {self.lines[-3:]}")

    def read_to_end(self) -> list[str]:
        """Read to the end, and return every line."""
        for _ in self._coming():
            pass
        return self.lines

    def _coming(self) -> Iterator[str]:
        while line := self.answer.readline():
            text = line.decode().rstrip("\n")
            if text:
                self.lines.append(text)
                yield text


@contextmanager
def listening(
    service: ModelService, text: str, *, front: Service | None = None, model: str = "fake/chat"
) -> Iterator[Listener]:
    """Send a streamed call; the client disconnects at the end of the block."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", (front or service.front).port, timeout=TIMEOUT_SECONDS
    )
    headers = {"Authorization": f"Bearer {service.api_key}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body_of(text, model=model)), headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        yield Listener(connection, answer)
    finally:
        answer_socket = connection.sock
        if answer_socket is not None:
            answer_socket.close()
        connection.close()


def is_error(line: str) -> bool:
    """Return whether a line of a stream is an error event."""
    return line.startswith("data: {") and "error" in json.loads(line.removeprefix("data: "))


def has_finished_well(lines: list[str]) -> bool:
    """Return whether a stream claims that its reply is complete."""
    return any('"finish_reason":"stop"' in line for line in lines)


def assert_ended_with_an_error(lines: list[str]) -> None:
    """Check that a stream's last event before its terminator is an error."""
    assert lines[-1] == "data: [DONE]"
    assert is_error(lines[-2])
    assert not has_finished_well(lines)
