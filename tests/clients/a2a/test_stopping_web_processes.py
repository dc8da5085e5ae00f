"""A web process that drains ends every waiting request first, with a response in the protocol of that request."""

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import openai
import pytest

from tests.clients.a2a.conftest import Agents
from tests.support.data.inventory import query
from tests.support.processes.command_line import CommandLine
from tests.support.processes.stack import free_port, wait_until
from tests.support.web.event_lines import event_lines

SCRIPT = """
rules:
  - match: {text: hang}
    steps: [{status: Hanging}, {hang: true}]
  - steps: [{delay: 600}, {message: pong}]
"""
ENDLESS: Any = [{"role": "user", "content": "!delay 200\n!tokens 600"}]
"""The reply takes two minutes."""
DRAIN_SECONDS = "8"
Events = list[tuple[int, dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Farewell:
    """The responses of requests that waited at a stopping web process. A stream that is cut off would have raised."""

    task_id: str
    begun: Events
    resumed: Events
    through_rpc: Events
    pondered: Events
    sent: httpx.Response
    talked: tuple[int, str, str]
    streamed: openai.APIError
    whole: openai.APIError


class Elsewhere:
    """The same service at a web process that continues."""

    def __init__(self, agents: Agents) -> None:
        self.stack = agents.service.stack
        identity = agents.service.identity
        self.person = identity.person(agents.service.organization_id)
        self.headers = {"Authorization": self.person.authorization}
        self.agent = agents.new_agent(SCRIPT).deployment.id
        self.front = agents.fronts[0]

    def address(self, front: str | None = None) -> str:
        return f"{front or self.front}/agents/{self.agent}"

    def cancel(self, task_id: str) -> None:
        path = f"{self.address()}/tasks/{task_id}:cancel"
        httpx.post(path, headers=self.headers, timeout=60).raise_for_status()

    def logged(self, task_id: str) -> Events:
        """Return all events of a task from the database."""
        statement = "SELECT sequence, event FROM task_events WHERE task_id = %s ORDER BY sequence"
        return [(row[0], json.loads(row[1])) for row in query(self.stack, statement, (task_id,))]

    def count_turns(self, condition: str) -> int:
        statement = (
            "SELECT count(*) FROM task_turns turn JOIN tasks task ON task.id = turn.task_id"
            f" WHERE task.deployment_id = %s AND {condition}"
        )
        return int(query(self.stack, statement, (str(self.agent),))[0][0])


@pytest.fixture(scope="module")
def elsewhere(agents: Agents) -> Elsewhere:
    return Elsewhere(agents)


@pytest.fixture(scope="module")
def farewell(agents: Agents, elsewhere: Elsewhere) -> Farewell:
    service = agents.service
    front = service.stack.web(port=free_port(), WEB_DRAIN_SECONDS=DRAIN_SECONDS)
    with service.stack.running(front), ThreadPoolExecutor(8) as threads:
        address, headers = elsewhere.address(front.url), elsewhere.headers

        def follow(path: str, body: Any, until: str, **more: str) -> tuple[Events, Future[None]]:
            heard: Events = []
            ended = threads.submit(_hear, heard, f"{address}{path}", headers | more, body)
            wait_until(lambda: ended.done() or until in json.dumps(heard), f"{until!r} has come")
            return heard, ended

        begun = follow("/message:stream", _message("hang"), "Hanging")
        task_id = begun[0][0][1]["task"]["id"]
        resumed = follow(f"/tasks/{task_id}:subscribe", None, "Hanging", **{"Last-Event-ID": "0"})
        call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
        through_rpc = follow("", call, "Hanging")
        pondered = follow("/message:stream", _message("ponder"), "")
        sent = threads.submit(_post, f"{address}/message:send", headers, _message("hang"))
        signed_in = {"SERVICE_BASE_URL": front.url, "SERVICE_API_KEY": elsewhere.person.api_key}
        talk = CommandLine(signed_in, "agents", "talk", str(elsewhere.agent), "hang", "--json")
        wait_until(lambda: elsewhere.count_turns("turn.state = 'running'") == 4, "the agent is at work")
        with openai.OpenAI(base_url=f"{front.url}/v1", api_key=service.api_key, max_retries=0) as client:
            stream = client.chat.completions.create(model="scripted/echo", messages=ENDLESS, stream=True)
            next(stream)
            streamed = threads.submit(_fail, lambda: list(stream))
            before = len(service.invocations())
            whole = threads.submit(
                _fail, lambda: client.chat.completions.create(model="scripted/echo", messages=ENDLESS)
            )
            wait_until(lambda: len(service.invocations()) > before, "the call is taken")
            assert front.terminate()
            for _, ended in (begun, resumed, through_rpc, pondered):
                ended.result(60)
            farewell = Farewell(
                task_id=task_id,
                begun=begun[0],
                resumed=resumed[0],
                through_rpc=through_rpc[0],
                pondered=pondered[0],
                sent=sent.result(60),
                talked=talk.finish(),
                streamed=streamed.result(60),
                whole=whole.result(60),
            )
    service.wait_until_settled()
    return farewell


def test_draining_streams_end_cleanly_after_every_event(farewell: Farewell, elsewhere: Elsewhere) -> None:
    logged = elsewhere.logged(farewell.task_id)
    assert farewell.begun[1:] == farewell.resumed == logged
    assert [event["result"]["task"]["id"] for _, event in farewell.through_rpc] == [farewell.task_id]


def test_client_that_resumes_elsewhere_misses_nothing(farewell: Farewell, elsewhere: Elsewhere) -> None:
    rest: Events = []
    last_id, _ = farewell.resumed[-1]
    path = f"{elsewhere.address()}/tasks/{farewell.task_id}:subscribe"
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(_hear, rest, path, elsewhere.headers | {"Last-Event-ID": str(last_id)}, None)
        elsewhere.cancel(farewell.task_id)
        ended.result(60)
    assert farewell.resumed + rest == elsewhere.logged(farewell.task_id)
    assert rest[-1][1]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"


def test_drained_request_without_events_receives_its_task(farewell: Farewell, elsewhere: Elsewhere) -> None:
    ((_, shown),) = farewell.pondered
    elsewhere.cancel(shown["task"]["id"])
    assert farewell.sent.status_code == 200
    task = farewell.sent.json()["task"]
    assert task["status"]["state"] == "TASK_STATE_WORKING"
    elsewhere.cancel(task["id"])


def test_command_reports_that_the_task_continues(farewell: Farewell, elsewhere: Elsewhere) -> None:
    status, events, complaint = farewell.talked
    shown = json.JSONDecoder().raw_decode(events)[0]["task"]
    elsewhere.cancel(shown["id"])
    assert (status, complaint) == (
        4,
        f"Error: The stream ended before the agent's reply was complete; task {shown['id']} continues.\n",
    )


def test_calls_of_models_end_with_an_error_and_are_settled(farewell: Farewell) -> None:
    assert farewell.streamed.code == "unavailable"
    assert isinstance(farewell.whole, openai.InternalServerError)
    assert farewell.whole.status_code == 503
    assert farewell.whole.response.headers["x-should-retry"] == "false"


def _hear(heard: Events, url: str, headers: dict[str, str], body: Any) -> None:
    """Read a stream to its end. Raises HTTPError if it is cut off."""
    number = 0
    with (
        httpx.Client(headers=headers, timeout=60) as client,
        client.stream("POST", url, json=body) as answer,
    ):
        for line in event_lines(answer):
            name, _, value = line.partition(": ")
            if name == "id":
                number = int(value)
            elif name == "data":
                heard.append((number, json.loads(value)))


def _message(text: str) -> dict[str, Any]:
    return {"message": {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}}


def _post(url: str, headers: dict[str, str], body: Any) -> httpx.Response:
    return httpx.post(url, headers=headers, json=body, timeout=60)


def _fail(ask: Callable[[], object]) -> openai.APIError:
    with pytest.raises(openai.APIError) as raised:
        ask()
    return raised.value
