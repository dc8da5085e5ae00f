"""A worker or web process dies during a stream: a client that returns receives every event once, in order."""

import json
import signal
import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.clients.a2a.conftest import Agents
from tests.support.data.inventory import query
from tests.support.processes.stack import wait_until
from tests.support.web.event_lines import event_lines

COUNT = ["1 ", "2 ", "3 ", "4 ", "5 ", "6 "]


@pytest.fixture(scope="module")
def authorization(agents: Agents) -> str:
    """A member's authorization."""
    return agents.service.identity.person(agents.service.organization_id).authorization


class Listener:
    """Reads a stream in a thread until it ends or is cut off."""

    def __init__(self, method: str, url: str, headers: dict[str, str], body: Any = None) -> None:
        self.events: list[tuple[int, dict[str, Any]]] = []
        self.ended_well = False
        self._id = 0
        self._request = (method, url, headers, body)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for_piece(self, text: str) -> None:
        wait_until(lambda: text in json.dumps(self.events), f"{text!r} has come")

    def wait_for_end(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    @property
    def last_id(self) -> int:
        return self.events[-1][0]

    def _run(self) -> None:
        method, url, headers, body = self._request
        try:
            with (
                httpx.Client(headers=headers, timeout=60) as http,
                http.stream(method, url, json=body) as answer,
            ):
                for line in event_lines(answer):
                    self._hear(line)
            self.ended_well = True
        except httpx.HTTPError:
            pass

    def _hear(self, line: str) -> None:
        if line.startswith("id: "):
            self._id = int(line[4:])
        if line.startswith("data: "):
            self.events.append((self._id, json.loads(line[6:])))


def send(agents: Agents, authorization: str, front: str) -> Listener:
    said = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "slow"}]}
    headers = {"Authorization": authorization, "Last-Event-ID": "0"}
    return Listener("POST", f"{agents.address(front=front)}/message:stream", headers, {"message": said})


def pieces(events: list[tuple[int, dict[str, Any]]]) -> Iterator[str]:
    for _, event in events:
        if "artifactUpdate" in event:
            yield event["artifactUpdate"]["artifact"]["parts"][0]["text"]


def logged(agents: Agents, task_id: str) -> list[tuple[int, dict[str, Any]]]:
    """Return all events of a task from the database."""
    statement = "SELECT sequence, event FROM task_events WHERE task_id = %s ORDER BY sequence"
    return [(row[0], json.loads(row[1])) for row in query(agents.service.stack, statement, (task_id,))]


def test_a_stream_survives_its_worker(agents: Agents, authorization: str) -> None:
    stream = send(agents, authorization, agents.fronts[0])
    stream.wait_for_piece("2 ")
    agents.worker.kill()
    agents.worker.start()
    # The lease ends within seconds, and another worker takes the turn over. Here the restarted worker is the only one.
    stream.wait_for_end()
    task_id = stream.events[0][1]["task"]["id"]
    assert stream.ended_well
    assert list(pieces(stream.events)) == COUNT
    assert stream.events[1:] == logged(agents, task_id)
    last = stream.events[-1][1]["statusUpdate"]["status"]
    assert last["state"] == "TASK_STATE_COMPLETED"


def test_a_stream_survives_a_worker_that_stalls(agents: Agents, authorization: str) -> None:
    stream = send(agents, authorization, agents.fronts[0])
    stream.wait_for_piece("2 ")
    agents.worker.send_signal(signal.SIGSTOP)
    try:
        with agents.service.stack.running(agents.service.stack.worker("agents")):
            stream.wait_for_end()
    finally:
        agents.worker.send_signal(signal.SIGCONT)
    # It continues, finds that another worker holds the lease of its turn, and writes nothing more.
    wait_until(lambda: agents.worker.has_logged("turn.lost_here"), "the stalled worker knows")
    assert stream.ended_well
    assert list(pieces(stream.events)) == COUNT
    assert stream.events[1:] == logged(agents, stream.events[0][1]["task"]["id"])


def test_client_misses_nothing_when_its_web_process_dies(agents: Agents, authorization: str) -> None:
    stream = send(agents, authorization, agents.fronts[1])
    stream.wait_for_piece("2 ")
    agents.second.kill()
    stream.wait_for_end()
    assert not stream.ended_well
    task_id = stream.events[0][1]["task"]["id"]
    path = f"{agents.address(front=agents.fronts[0])}/tasks/{task_id}:subscribe"
    plain = Listener("POST", path, {"Authorization": authorization})
    exact = Listener("GET", path, {"Authorization": authorization, "Last-Event-ID": str(stream.last_id)})
    agents.second.start()
    plain.wait_for_end()
    exact.wait_for_end()
    assert plain.ended_well
    assert exact.ended_well
    # With event ids, the two streams equal the log. Without, the first event is the task with all earlier updates.
    assert stream.events[1:] + exact.events == logged(agents, task_id)
    told = plain.events[0][1]["task"]
    before = told["artifacts"][0]["parts"][0]["text"]
    assert before + "".join(pieces(plain.events)) == "".join(COUNT)
    agents.second.wait_until_answering()
