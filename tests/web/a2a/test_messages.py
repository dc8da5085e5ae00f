"""Sending messages: blocking or not, streams, further turns of a task, contexts, and idempotency keys."""

from uuid import uuid4

import pytest

from shared.a2a.behaviors.administration import remove_behavior
from shared.a2a.exact_json import parse, render
from shared.a2a.updates import DeclaredExtension
from shared.identity.access.authorization import OPERATOR
from tests.contracts.a2a.schemas import check
from tests.web.a2a.asking import Client, events, reason, request, states, text_of
from tests.web.a2a.conftest import SCRIPT, Cast, give_script

NUMBERS = '{"int":9007199254740993,"amount":1.10,"large":1e400,"zero":-0.0,"none":null,"z":1,"a":2}'


def test_blocking_send_returns_the_ended_task(cast: Cast) -> None:
    task = cast.member.task("work")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(task["status"]["message"]) == "Done"
    assert [artifact["name"] for artifact in task["artifacts"]] == ["report"]
    assert task["artifacts"][0]["parts"] == [{"text": "Once upon a time"}]
    assert [text_of(message) for message in task["history"]] == ["work", "Reading"]
    assert task["history"][0]["taskId"] == task["id"]


def test_agent_may_reply_with_a_message_instead_of_a_task(cast: Cast) -> None:
    answer = cast.member.send("ping")
    body = parse(answer.get_data())
    check("SendMessageResponse", body)
    assert text_of(body["message"]) == "pong"
    assert "taskId" not in body["message"]
    assert body["message"]["contextId"]


def test_non_blocking_send_returns_the_task_at_once(cast: Cast) -> None:
    task = cast.member.task("hang", configuration={"returnImmediately": True})
    assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert cast.member.read(task["id"])["id"] == task["id"]
    cast.member.ask("POST", f"/tasks/{task['id']}:cancel")


def test_message_reply_to_a_non_blocking_send_is_a_completed_task(cast: Cast) -> None:
    task = cast.member.task("ping", configuration={"returnImmediately": True})
    stream = cast.member.ask("GET", f"/tasks/{task['id']}:subscribe")
    if stream.status_code == 200:  # the subscription arrived before the end
        assert states(events(stream))[-1] == "COMPLETED"
    again = cast.member.ask("GET", f"/tasks/{task['id']}:subscribe")
    assert (again.status_code, reason(again)) == (400, "UNSUPPORTED_OPERATION")
    found = cast.member.read(task["id"])
    assert found["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(found["status"]["message"]) == "pong"


def test_stream_contains_the_task_and_then_all_events_in_order(cast: Cast) -> None:
    stream = cast.member.stream("work")
    assert list(stream[0]) == ["task"]
    assert states(stream) == ["SUBMITTED", "WORKING", "COMPLETED"]
    pieces = [event["artifactUpdate"] for event in stream if "artifactUpdate" in event]
    assert [piece["artifact"]["parts"][0]["text"] for piece in pieces] == ["Once ", "upon ", "a time"]
    assert [piece.get("append", False) for piece in pieces] == [False, True, True]
    assert [piece["lastChunk"] for piece in pieces] == [False, False, True]


def test_a_stream_of_a_message_is_that_message(cast: Cast) -> None:
    stream = cast.member.stream("ping")
    assert [list(event) for event in stream] == [["message"]]


def test_a_stream_ends_when_the_task_waits_for_its_client(cast: Cast) -> None:
    assert states(cast.member.stream("ask")) == ["SUBMITTED", "INPUT_REQUIRED"]


def test_a_task_goes_on_with_its_next_message(cast: Cast) -> None:
    asked = cast.member.task("ask")
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert text_of(asked["status"]["message"]) == "Which one?"
    answered = cast.member.task("the first", taskId=asked["id"])
    assert answered["id"] == asked["id"]
    assert answered["contextId"] == asked["contextId"]
    assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [text_of(message) for message in answered["history"]] == ["ask", "Which one?", "the first"]


def test_stream_of_a_second_turn_begins_with_the_working_task(cast: Cast) -> None:
    asked = cast.member.task("ask")
    stream = cast.member.stream("the second", taskId=asked["id"])
    assert states(stream)[0] == "SUBMITTED"
    assert states(stream)[-1] == "COMPLETED"
    assert text_of(stream[0]["task"]["history"][-1]) == "the second"


def test_numbers_keep_their_digits(cast: Cast) -> None:
    said = request("echo", metadata_="")["message"] | {
        "metadata": parse(NUMBERS),
        "parts": [{"text": "echo"}, {"data": parse(NUMBERS), "metadata": parse(NUMBERS)}],
    }
    said.pop("metadata_")
    body = render({"message": said})
    answer = cast.member.ask("POST", "/message:send", data=body, headers={"Content-Type": "application/json"})
    text = answer.get_data(as_text=True)
    assert text.count(NUMBERS) >= 6
    task_id = parse(text)["task"]["id"]
    assert NUMBERS in cast.member.ask("GET", f"/tasks/{task_id}").get_data(as_text=True)
    streamed = cast.member.ask(
        "POST", "/message:stream", data=body, headers={"Content-Type": "application/json"}
    )
    assert NUMBERS in streamed.get_data(as_text=True)


def test_context_of_the_client_is_used(cast: Cast) -> None:
    context = f"my context / {uuid4()}"
    tasks = [cast.member.task("hello", contextId=context) for _ in range(2)]
    assert {task["contextId"] for task in tasks} == {context}
    assert tasks[0]["id"] != tasks[1]["id"]


def test_a_message_id_may_be_used_again(cast: Cast) -> None:
    tasks = [cast.member.task("hello", messageId="the same") for _ in range(2)]
    assert tasks[0]["id"] != tasks[1]["id"]


def test_a_message_to_a_task_that_has_ended_is_refused(cast: Cast) -> None:
    task = cast.member.task("hello")
    answer = cast.member.send("more", taskId=task["id"])
    assert (answer.status_code, reason(answer)) == (400, "UNSUPPORTED_OPERATION")


def test_a_message_in_another_context_than_its_task_is_refused(cast: Cast) -> None:
    task = cast.member.task("ask")
    answer = cast.member.send("more", taskId=task["id"], contextId="another")
    assert (answer.status_code, reason(answer)) == (400, "INVALID_PARAMS")


def test_messages_for_a_task_that_works_wait_for_their_turn(cast: Cast) -> None:
    _, client = cast.new_agent(
        "rules: [{steps: [{status: one}, {delay: 0.3}, {input_required: 'more?'}, {complete: 'got ${text}'}]}]"
    )
    task = client.task("first", configuration={"returnImmediately": True})
    done = client.task("second", taskId=task["id"])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(done["status"]["message"]) == "got second"


def test_the_history_is_as_long_as_asked_for(cast: Cast) -> None:
    for length, expected in ((0, []), (1, ["Reading"]), (2, ["work", "Reading"]), (9, ["work", "Reading"])):
        task = cast.member.task("work", configuration={"historyLength": length})
        assert [text_of(message) for message in task.get("history", [])] == expected
        again = cast.member.read(task["id"], f"?historyLength={length}")
        assert [text_of(message) for message in again.get("history", [])] == expected


def test_repeated_stream_has_the_requested_history_length(cast: Cast) -> None:
    for length in (0, 1):
        body = request("work", configuration={"historyLength": length})
        client = cast.member.with_headers(Idempotency_Key=str(uuid4()))
        for _ in range(2):
            shown = events(client.ask("POST", "/message:stream", json=body))[0]["task"]
            assert len(shown.get("history", [])) == length


def test_message_with_a_repeated_key_is_accepted_once(cast: Cast) -> None:
    client = cast.member.with_headers(Idempotency_Key=str(uuid4()))
    body = request("work")
    first = parse(client.ask("POST", "/message:send", json=body).get_data())
    second = parse(client.ask("POST", "/message:send", json=body).get_data())
    assert first == second
    streamed = events(client.ask("POST", "/message:stream", json=body))
    assert streamed[-1]["task"]["id"] == first["task"]["id"]
    other = client.ask("POST", "/message:send", json=request("work"))
    assert (other.status_code, reason(other)) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert cast.colleague.with_headers(**{"Idempotency-Key": "k"}).task("hello")["id"]


@pytest.mark.parametrize("path", ["/message:send", "/message:stream"])
def test_repeated_key_is_recognized_after_the_agent_changed(cast: Cast, path: str) -> None:
    refined = "https://example.com/refined/v1"
    agent, client = cast.new_agent()
    skill = give_script(cast.front, agent, SCRIPT, name="more")
    client = client.with_headers(Idempotency_Key=str(uuid4()), A2A_Extensions=refined)
    body = request("work")
    body["message"]["metadata"] = {"skillId": "more"}

    def task() -> str:
        answer = client.ask("POST", path, json=body)
        told = events(answer) if path.endswith("stream") else [parse(answer.get_data())]
        return str(told[0]["task"]["id"])

    first = task()
    with cast.front.services.database.transaction() as session:
        remove_behavior(session, actor=OPERATOR, behavior_id=skill.id)
    assert task() == first
    required = DeclaredExtension(uri="https://example.com/required/v1", required=True)
    declared = (DeclaredExtension(uri=refined), required)
    give_script(cast.front, agent, SCRIPT, name="strict", extensions=declared)
    assert task() == first
    refused = client.ask("POST", path, json=request("work"), headers={"Idempotency-Key": str(uuid4())})
    assert reason(refused) == "EXTENSION_SUPPORT_REQUIRED"


def test_idempotency_key_belongs_to_caller_principal_and_agent(cast: Cast) -> None:
    identity, key, body = cast.front.identity, str(uuid4()), request("work")
    direct = cast.client(identity.authorization(cast.caller_agent))
    principal = identity.principal(cast.acme)
    distribution = identity.distribution(
        cast.acme, principal_id=principal.id, deployment_id=cast.caller_agent.deployment.id
    )
    second = identity.deployment(cast.acme)
    to_second = identity.distribution(
        cast.acme, principal_id=principal.id, deployment_id=second.deployment.id
    )
    other_agent, _ = cast.new_agent()
    foreign = identity.deployment(identity.organization("Initech").id)
    give_script(cast.front, foreign, SCRIPT)
    clients = {
        "the first": direct,
        "another caller": cast.member,
        "another principal": direct.with_headers(
            Service_Usage_Attribution=identity.attribution(distribution)
        ),
        "another caller for that principal": cast.client(identity.authorization(second)).with_headers(
            Service_Usage_Attribution=identity.attribution(to_second)
        ),
        "another agent": cast.at(other_agent, direct.authorization),
        "another organization": cast.at(foreign, identity.authorization(foreign)),
    }

    def task(client: Client) -> str:
        answer = client.with_headers(Idempotency_Key=key).ask("POST", "/message:send", json=body)
        assert answer.status_code == 200, answer.text
        return str(parse(answer.get_data())["task"]["id"])

    tasks = {name: task(client) for name, client in clients.items()}
    assert len(set(tasks.values())) == len(clients), tasks
    assert {name: task(client) for name, client in clients.items()} == tasks


def test_repeated_key_returns_the_same_message(cast: Cast) -> None:
    client = cast.member.with_headers(Idempotency_Key=str(uuid4()))
    body = request("ping")
    first = parse(client.ask("POST", "/message:send", json=body).get_data())
    assert parse(client.ask("POST", "/message:send", json=body).get_data()) == first
    assert events(client.ask("POST", "/message:stream", json=body)) == [first]


def test_empty_reply_is_an_invalid_agent_response(cast: Cast) -> None:
    for path in ("/message:send", "/message:stream"):
        answer = cast.member.send("silence", path=path)
        assert (answer.status_code, reason(answer)) == (500, "INVALID_AGENT_RESPONSE")


def test_failed_task_contains_the_reason(cast: Cast) -> None:
    task = cast.member.task("fail")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert text_of(task["status"]["message"]) == "It broke"


def test_a_client_speaks_as_the_user(cast: Cast) -> None:
    answer = cast.member.send(role="ROLE_AGENT")
    assert (answer.status_code, reason(answer)) == (400, "INVALID_PARAMS")
    violations = answer.get_json()["error"]["details"][1]["fieldViolations"]
    assert [at["field"] for at in violations] == ["message.role"]


def test_an_empty_context_is_none(cast: Cast) -> None:
    task = cast.member.task("work", contextId="", taskId="")
    assert task["contextId"]
