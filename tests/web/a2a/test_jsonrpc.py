"""The JSON-RPC binding: the same operations at an agent's base URL, error numbers, and streams of full responses."""

from typing import Any

import pytest
from werkzeug.test import TestResponse

from shared.a2a.exact_json import parse
from tests.contracts.a2a.schemas import check
from tests.web.a2a.asking import request
from tests.web.a2a.conftest import Cast

VERSION = "2.0"
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


def post(cast: Cast, method: str, params: Any = None, **options: Any) -> TestResponse:
    body = {"jsonrpc": VERSION, "id": "7", "method": method} | ({"params": params} if params else {})
    return cast.member.ask("POST", "", json=body, **options)


def result(answer: TestResponse, shape: str | None = None) -> Any:
    assert answer.status_code == 200, answer.get_data(as_text=True)
    assert answer.mimetype == "application/json"
    body = parse(answer.get_data())
    assert set(body) == {"jsonrpc", "id", "result"}, body
    assert (body["jsonrpc"], body["id"]) == (VERSION, "7")
    if shape is not None:
        check(shape, body["result"])
    return body["result"]


def error(answer: TestResponse, request_id: Any = "7") -> tuple[int, str]:
    """Return the number and the reason of an error."""
    assert answer.status_code == 200
    assert answer.mimetype == "application/json"
    body = parse(answer.get_data())
    assert set(body) == {"jsonrpc", "id", "error"}
    assert body["id"] == request_id
    assert isinstance(body["error"]["message"], str)
    information = body["error"]["data"][0]
    assert information["@type"] == ERROR_INFO
    return body["error"]["code"], information["reason"]


def streamed(answer: TestResponse) -> list[dict[str, Any]]:
    assert answer.mimetype == "text/event-stream"
    found = []
    for block in answer.get_data(as_text=True).split("\n\n"):
        for line in block.split("\n"):
            if line.startswith("data: "):
                body = parse(line[6:])
                assert (body["jsonrpc"], body["id"]) == (VERSION, "7")
                check("StreamResponse", body["result"])
                found.append(body["result"])
    return found


def test_every_operation_has_a_method(cast: Cast) -> None:
    task = result(post(cast, "SendMessage", request("ask")), "SendMessageResponse")["task"]
    named = {"id": task["id"]}
    read = result(post(cast, "GetTask", {**named, "historyLength": 0}), "Task")
    assert (read["id"], "history" in read) == (task["id"], False)
    listed = result(
        post(cast, "ListTasks", {"contextId": task["contextId"], "includeArtifacts": True, "pageSize": 1}),
        "ListTasksResponse",
    )
    assert [found["id"] for found in listed["tasks"]] == [task["id"]]
    config = {"taskId": task["id"], "id": "mine", "url": "https://hooks.example/"}
    made = result(post(cast, "CreateTaskPushNotificationConfig", config), "TaskPushNotificationConfig")
    chosen = {"taskId": task["id"], "id": "mine"}
    assert result(post(cast, "GetTaskPushNotificationConfig", chosen)) == made
    configs = result(post(cast, "ListTaskPushNotificationConfigs", {"taskId": task["id"]}))
    assert configs["configs"] == [made]
    assert result(post(cast, "DeleteTaskPushNotificationConfig", chosen)) == {}
    cancelled = result(post(cast, "CancelTask", named), "Task")
    assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
    card = result(post(cast, "GetExtendedAgentCard"), "AgentCard")
    assert "a script" in card["skills"][0]["description"]


def test_streams_are_whole_responses(cast: Cast) -> None:
    events = streamed(post(cast, "SendStreamingMessage", request("work")))
    assert [next(iter(event)) for event in events] == [
        "task",
        "statusUpdate",
        *["artifactUpdate"] * 3,
        "statusUpdate",
    ]


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("GetTask", {"id": "no-such-task"}, (-32001, "TASK_NOT_FOUND")),
        ("SubscribeToTask", {"id": "no-such-task"}, (-32001, "TASK_NOT_FOUND")),
        ("GetTask", {}, (-32602, "INVALID_PARAMS")),
        ("GetTask", {"id": 7}, (-32602, "INVALID_PARAMS")),
        ("ListTasks", {"pageToken": "nonsense"}, (-32602, "INVALID_PARAMS")),
        ("ListTasks", {"pageSize": 0}, (-32602, "INVALID_PARAMS")),
        ("SendMessage", {"message": {}}, (-32602, "INVALID_PARAMS")),
        ("SendMessage", ["message"], (-32602, "INVALID_PARAMS")),
        ("message/send", request("hello"), (-32601, "METHOD_NOT_FOUND")),
    ],
)
def test_errors_have_their_numbers(cast: Cast, method: str, params: Any, expected: tuple[int, str]) -> None:
    assert error(post(cast, method, params)) == expected


def test_states_extensions_and_versions_are_refused_by_number(cast: Cast) -> None:
    done = result(post(cast, "SendMessage", request("work")))["task"]
    assert error(post(cast, "CancelTask", {"id": done["id"]})) == (-32002, "TASK_NOT_CANCELABLE")
    assert error(post(cast, "SubscribeToTask", {"id": done["id"]})) == (-32004, "UNSUPPORTED_OPERATION")
    assert error(post(cast, "SendMessage", request("silence"))) == (-32006, "INVALID_AGENT_RESPONSE")
    old = post(cast, "ListTasks", headers={"A2A-Version": "0.3"})
    assert error(old) == (-32009, "VERSION_NOT_SUPPORTED")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{", (-32700, "PARSE_ERROR")),
        (b"\xff", (-32700, "PARSE_ERROR")),
        (b"", (-32700, "PARSE_ERROR")),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ListTasks"}]', (-32600, "INVALID_REQUEST")),
        (b'{"jsonrpc":"1.0","id":1,"method":"ListTasks"}', (-32600, "INVALID_REQUEST")),
        (b'{"jsonrpc":"2.0","method":"ListTasks"}', (-32600, "INVALID_REQUEST")),
        (b'{"jsonrpc":"2.0","id":{},"method":"ListTasks"}', (-32600, "INVALID_REQUEST")),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', (-32600, "INVALID_REQUEST")),
    ],
)
def test_invalid_request_is_refused(cast: Cast, body: bytes, expected: tuple[int, str]) -> None:
    answer = cast.member.ask("POST", "", data=body)
    assert error(answer, parse(answer.get_data())["id"]) == expected


def test_numbers_and_identifiers_are_kept(cast: Cast) -> None:
    body = (
        '{"jsonrpc":"2.0","id":12345678901234567890,"method":"SendMessage","params":{"message":{"messageId":"n",'
        '"role":"ROLE_USER","parts":[{"text":"echo"},{"data":{"revision":9007199254740993,"price":1.10}}]}}}'
    )
    answer = cast.member.ask("POST", "", data=body).get_data(as_text=True)
    assert '"id":12345678901234567890' in answer
    assert '{"revision":9007199254740993,"price":1.10}' in answer


@pytest.mark.parametrize("number", ["1.50", "-2.425100358941205e-279"])
def test_id_may_be_any_number_as_documented(cast: Cast, number: str) -> None:
    for method in ("ListTasks", "NoSuchMethod"):
        body = f'{{"jsonrpc":"2.0","id":{number},"method":"{method}"}}'
        assert f'"id":{number}' in cast.member.ask("POST", "", data=body).get_data(as_text=True)


def test_unauthorized_caller_gets_an_http_status(cast: Cast) -> None:
    body = {"jsonrpc": VERSION, "id": "7", "method": "ListTasks"}
    assert cast.front.ask("POST", cast.member.prefix, "Bearer wrong", json=body).status_code == 401


def test_extensions_are_echoed(cast: Cast) -> None:
    event = f"{cast.front.settings.base_url}/extensions/event/v1"
    answer = post(cast, "ListTasks", headers={"A2A-Extensions": event})
    assert answer.headers["A2A-Extensions"] == event


def test_cards_name_both_bindings(cast: Cast) -> None:
    card = cast.member.ask("GET", "/.well-known/agent-card.json").get_json()
    check("AgentCard", card)
    assert [at["protocolBinding"] for at in card["supportedInterfaces"]] == ["HTTP+JSON", "JSONRPC"]
    assert len({at["url"] for at in card["supportedInterfaces"]}) == 1
