"""Reading, listing, cancelling and subscribing to tasks; tasks of other callers do not exist for a caller."""

import threading
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from shared.a2a.exact_json import parse
from shared.a2a.types import Task
from tests.contracts.a2a.schemas import check
from tests.support.processes.stack import wait_until
from tests.web.a2a.asking import Client, events, read_events, reason, states, text_of
from tests.web.a2a.conftest import Cast


def hang(client: Client) -> dict[str, Any]:
    """Create a task that works until it is cancelled."""
    task = client.task("hang", configuration={"returnImmediately": True})
    wait_until(lambda: client.read(task["id"])["status"]["state"].endswith("WORKING"), "the agent has begun")
    return task


def cancel(client: Client, task: dict[str, Any]) -> None:
    assert client.ask("POST", f"/tasks/{task['id']}:cancel").status_code == 200


def test_a_cancelled_task_is_cancelled_at_once_and_for_good(cast: Cast) -> None:
    task = hang(cast.member)
    answer = cast.member.ask(
        "POST", f"/tasks/{task['id']}:cancel", headers={"Content-Type": "application/json"}
    )
    cancelled = parse(answer.get_data())
    check("Task", cancelled)
    assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
    again = cast.member.ask("POST", f"/tasks/{task['id']}:cancel", json={"metadata": {}})
    assert (again.status_code, reason(again)) == (400, "TASK_NOT_CANCELABLE")
    assert cast.member.read(task["id"])["status"]["state"] == "TASK_STATE_CANCELED"


def test_waiting_send_returns_when_its_task_is_cancelled(cast: Cast) -> None:
    _, client = cast.new_agent()
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: answers.append(client.task("hang")))
    waiting.start()
    wait_until(lambda: client.list()["totalSize"] == 1, "the task is there")
    cancel(client, client.list()["tasks"][0])
    waiting.join()
    assert answers[0]["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_subscription_begins_with_the_task_and_ends_with_it(cast: Cast, method: str) -> None:
    task = hang(cast.member)
    stream = cast.member.ask(method, f"/tasks/{task['id']}:subscribe", buffered=False)
    assert stream.mimetype == "text/event-stream"
    cancel(cast.member, task)
    told = events(stream)
    assert states(told) == ["WORKING", "CANCELED"]
    assert told[0]["task"]["id"] == task["id"]


def test_a_subscription_stays_while_the_task_waits_for_its_client(cast: Cast) -> None:
    task = cast.member.task("ask")
    stream = cast.member.ask("GET", f"/tasks/{task['id']}:subscribe", buffered=False)
    cast.member.task("this one", taskId=task["id"])
    assert states(events(stream)) == ["INPUT_REQUIRED", "SUBMITTED", "COMPLETED"]


def test_all_subscribers_get_the_same_events(cast: Cast) -> None:
    task = cast.member.task("ask")
    streams = [cast.member.ask("GET", f"/tasks/{task['id']}:subscribe", buffered=False) for _ in range(3)]
    streams.pop().close()
    cast.member.task("this one", taskId=task["id"])
    told = [events(stream) for stream in streams]
    assert told[0] == told[1]


def test_a_task_that_has_ended_is_not_followed(cast: Cast) -> None:
    task = cast.member.task("hello")
    answer = cast.member.ask("POST", f"/tasks/{task['id']}:subscribe")
    assert (answer.status_code, reason(answer)) == (400, "UNSUPPORTED_OPERATION")


def test_subscription_with_last_event_id_continues_after_it(cast: Cast) -> None:
    client = cast.member.with_headers(Last_Event_ID="0")
    streamed = client.send("work", path="/message:stream").get_data(as_text=True)
    ids = [int(line[4:]) for line in streamed.splitlines() if line.startswith("id: ")]
    assert ids == list(range(len(ids)))
    told = list(read_events(streamed))
    task_id = told[0]["task"]["id"]
    for last in range(len(ids) - 1):
        rest = cast.member.with_headers(Last_Event_ID=str(last)).ask("GET", f"/tasks/{task_id}:subscribe")
        assert events(rest) == told[last + 1 :]


@pytest.mark.parametrize("last", ["999", "9" * 18, "9" * 5000])
def test_subscription_with_a_future_event_id_misses_no_event(cast: Cast, last: str) -> None:
    task = cast.member.task("ask")
    streamed = cast.member.with_headers(Last_Event_ID=last).ask(
        "GET", f"/tasks/{task['id']}:subscribe", buffered=False
    )
    cast.member.task("the first", taskId=task["id"])
    assert states(events(streamed))[-1] == "COMPLETED"


def test_task_with_deleted_events_cannot_be_subscribed(cast: Cast) -> None:
    task = cast.member.task("work")
    with cast.front.services.database.transaction() as session:
        session.execute(text("DELETE FROM task_events WHERE task_id = :id"), {"id": task["id"]})
        session.execute(text("UPDATE tasks SET has_events = false WHERE id = :id"), {"id": task["id"]})
    answer = cast.member.with_headers(Last_Event_ID="0").ask("GET", f"/tasks/{task['id']}:subscribe")
    assert (answer.status_code, reason(answer)) == (400, "UNSUPPORTED_OPERATION")


def test_event_ids_are_the_same_for_all_callers(cast: Cast) -> None:
    streamed = cast.member.send("work", path="/message:stream").get_data(as_text=True)
    blocks = [block.splitlines() for block in streamed.split("\n\n") if block]
    ids = [int(block[0].removeprefix("id: ")) for block in blocks]
    assert ids == list(range(ids[0], ids[0] + 6))
    assert {len(block) for block in blocks} == {2}


def test_tasks_are_listed_the_last_changed_first(cast: Cast) -> None:
    _, client = cast.new_agent()
    made = [client.task("work")["id"] for _ in range(5)]
    page = client.list()
    assert [task["id"] for task in page["tasks"]] == made[::-1]
    assert (page["pageSize"], page["totalSize"], page["nextPageToken"]) == (50, 5, "")
    assert not any("artifacts" in task for task in page["tasks"])
    assert [text_of(message) for message in page["tasks"][0]["history"]] == ["work", "Reading"]


def test_pages_cover_all_tasks_once(cast: Cast) -> None:
    _, client = cast.new_agent()
    made = [client.task("hello")["id"] for _ in range(5)]
    seen, token = [], ""
    while True:
        page = client.list(f"?pageSize=2&pageToken={token}")
        assert page["totalSize"] == 5
        seen += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
        if not token:
            break
    assert seen == made[::-1]


def test_lists_are_filtered(cast: Cast) -> None:
    _, client = cast.new_agent()
    done = client.task("work", contextId="one")
    asked = client.task("ask", contextId="two")
    client.send("ping", contextId="two")
    assert [task["id"] for task in client.list("?contextId=one")["tasks"]] == [done["id"]]
    waiting = client.list("?status=TASK_STATE_INPUT_REQUIRED")["tasks"]
    assert [task["id"] for task in waiting] == [asked["id"]]
    since = client.list(f"?statusTimestampAfter={asked['status']['timestamp']}")["tasks"]
    assert [task["id"] for task in since] == [asked["id"]]
    full = client.list("?context_id=one&include_artifacts=true&history_length=0")["tasks"][0]
    assert full["artifacts"] == done["artifacts"]
    assert "history" not in full
    assert client.list()["totalSize"] == 2


@pytest.mark.parametrize(
    "query",
    [
        "pageSize=0",
        "pageSize=101",
        "pageSize=x",
        "pageToken=nonsense",
        "status=RUNNING",
        "historyLength=-1",
        "statusTimestampAfter=yesterday",
        "includeArtifacts=perhaps",
        "pageSize=1&pageSize=2",
    ],
)
def test_a_wrong_filter_is_refused_and_not_ignored(cast: Cast, query: str) -> None:
    answer = cast.member.ask("GET", f"/tasks?{query}")
    assert (answer.status_code, reason(answer)) == (400, "INVALID_PARAMS")


def test_unknown_parameters_are_ignored(cast: Cast) -> None:
    assert cast.member.list("?pageSize=1&sort=desc")["pageSize"] == 1


WAYS = (
    ("GET", "/tasks/{task}"),
    ("POST", "/tasks/{task}:cancel"),
    ("GET", "/tasks/{task}:subscribe"),
    ("POST", "/tasks/{task}:subscribe"),
    ("POST", "/tasks/{task}/pushNotificationConfigs"),
    ("GET", "/tasks/{task}/pushNotificationConfigs"),
    ("GET", "/tasks/{task}/pushNotificationConfigs/one"),
    ("DELETE", "/tasks/{task}/pushNotificationConfigs/one"),
)


@pytest.mark.parametrize("who", ["colleague", "deployment", "other agent"])
def test_the_tasks_of_others_are_not_there(cast: Cast, who: str) -> None:
    strangers = {
        "colleague": lambda: cast.colleague,
        "deployment": lambda: cast.client(cast.front.identity.authorization(cast.caller_agent)),
        "other agent": lambda: cast.new_agent()[1],
    }
    client, task = strangers[who](), cast.member.task("ask")
    for method, path in WAYS:
        body = {"json": {"id": "one", "url": "https://hooks.example/"}} if method == "POST" else {}
        foreign = client.ask(method, path.format(task=task["id"]), **body)
        absent = client.ask(method, path.format(task=uuid4()), **body)
        assert (foreign.status_code, reason(foreign)) == (404, "TASK_NOT_FOUND")
        assert foreign.get_json()["error"]["message"] == absent.get_json()["error"]["message"]
    assert client.send("x", taskId=task["id"]).status_code == 404
    assert client.send("x", referenceTaskIds=[task["id"]]).status_code == 200
    assert task["id"] not in str([found["id"] for found in client.list()["tasks"]])
    assert cast.member.read(task["id"])["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    # The response must not reveal either that another caller's task has ended.
    over = client.ask("POST", f"/tasks/{cast.member.task('work')['id']}:cancel")
    assert (over.status_code, reason(over)) == (404, "TASK_NOT_FOUND")


def test_a_deployment_has_other_tasks_for_each_identity_it_works_for(cast: Cast) -> None:
    identity = cast.front.identity
    token = identity.authorization(cast.caller_agent)
    direct = cast.client(token)
    clients = [direct]
    for _ in range(2):
        principal = identity.principal(cast.acme)
        distribution = identity.distribution(
            cast.acme, principal_id=principal.id, deployment_id=cast.caller_agent.deployment.id
        )
        attribution = identity.attribution(distribution)
        clients.append(direct.with_headers(Service_Usage_Attribution=attribution))
    tasks = [client.task("work") for client in clients]
    for client in clients:
        seen = [task["id"] in str(client.list()) for task in tasks]
        assert seen == [other is client for other in clients]


def test_ids_that_no_task_has_are_not_found(cast: Cast) -> None:
    for name in ("nonsense", "a%20b", str(uuid4()), "{" + str(uuid4()) + "}"):
        answer = cast.member.ask("GET", f"/tasks/{name}")
        assert (answer.status_code, reason(answer)) == (404, "TASK_NOT_FOUND")


def test_message_reply_leaves_no_task(cast: Cast) -> None:
    _, client = cast.new_agent()
    client.send("ping")
    assert client.list()["tasks"] == []


def test_get_returns_the_task_of_the_response(cast: Cast) -> None:
    task = cast.member.task("work")
    assert Task.model_validate(task).to_wire() == task
