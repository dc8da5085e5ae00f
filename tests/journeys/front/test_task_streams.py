"""A thousand streams of a task and hundreds of blocking sends, in one web process with sixteen threads."""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.processes.stack import Servers, Service, Stack, wait_until
from tests.web.server.trivial_front import many_files

STREAMS = 1000
SENDS = 300
CLIENTS = 16
SCRIPT = "rules: [{steps: [{delay: 600}]}]"
MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


class Caller:
    """The owner, who sends messages to an agent without a worker."""

    def __init__(self, front: Service, api_key: str) -> None:
        self.front = front
        self.headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}

    def post(self, path: str, body: dict[str, Any]) -> requests.Response:
        return requests.post(self.front.url + path, json=body, headers=self.headers, timeout=60)

    def begin(self, path: str, body: dict[str, Any]) -> socket.socket:
        """Send a request over a new connection, whose response the caller reads."""
        content = json.dumps(body).encode()
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        connection = socket.create_connection(("127.0.0.1", self.front.port or 0), timeout=60)
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        return connection

    def subscribe(self, task: str) -> tuple[socket.socket, http.client.HTTPResponse]:
        """Begin a stream of a task, and read its first event."""
        connection = self.begin(f"/tasks/{task}:subscribe", {})
        return connection, _begun(connection)


@pytest.fixture
def caller(servers: Servers, tmp_path: Path) -> Iterator[Caller]:
    script = tmp_path / "agent.yaml"
    script.write_text(SCRIPT)
    settings = {"A2A_SCRIPT": str(script), "STREAMS_PER_CALLER": "4000", "A2A_WAIT_SECONDS": "600"}
    stack = Stack(tmp_path / "stack", servers, settings=settings)
    key: str = stack.set_up()["ownerApiKey"]
    front = stack.web()
    with stack.running(front), many_files(STREAMS + SENDS + 500):
        yield Caller(front, key)


def test_waiting_streams_and_sends_hold_no_thread(caller: Caller) -> None:
    later = {"message": MESSAGE, "configuration": {"returnImmediately": True}}
    task = caller.post("/message:send", later).json()["task"]["id"]
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(CLIENTS) as clients:
        answers = []
        for connection, answer in clients.map(lambda _: caller.subscribe(task), range(STREAMS)):
            stack.enter_context(connection)
            answers.append(answer)
        for number in range(SENDS):
            message = {**MESSAGE, "messageId": f"s-{number}"}
            stack.enter_context(caller.begin("/message:send", {"message": message}))
        for _ in range(5):
            wait_until(
                lambda: requests.get(f"{caller.front.url}/readyz", timeout=60).ok, "the front is ready"
            )
            found = requests.get(f"{caller.front.url}/tasks/{task}", headers=caller.headers, timeout=60)
            assert found.json()["status"]["state"] == "TASK_STATE_SUBMITTED"
        assert caller.post(f"/tasks/{task}:cancel", {}).status_code == 200
        for answer in answers:
            assert b"TASK_STATE_CANCELED" in answer.read(), "a stream ends with its task"


def _begun(connection: socket.socket) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    assert answer.status == 200, answer.read()
    assert answer.readline().startswith(b"id: ")
    assert answer.readline().startswith(b"data: ")
    return answer
