"""Every error of the protocol's table, and the service's own errors, in A2A's format."""

import json
from uuid import uuid4

import pytest

from tests.support.web.web_process import Front, open_front
from tests.web.a2a.asking import Client, reason, request
from tests.web.a2a.conftest import Cast
from web.a2a import tasks


def status_of(answer: object) -> tuple[int, str, str]:
    error = json.loads(answer.get_data())["error"]  # type: ignore[attr-defined]
    return error["code"], error["status"], error["details"][0]["reason"]


def test_an_absent_task(cast: Cast) -> None:
    assert status_of(cast.member.ask("GET", f"/tasks/{uuid4()}")) == (404, "NOT_FOUND", "TASK_NOT_FOUND")


def test_content_that_the_agent_does_not_read(cast: Cast) -> None:
    answer = cast.member.send(parts=[{"raw": "aGk=", "mediaType": "image/png"}])
    assert status_of(answer) == (400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED")
    assert (
        answer.get_json()["error"]["details"][1]["fieldViolations"][0]["field"] == "message.parts.0.mediaType"
    )
    scripted = cast.member.send(messageId="error-content-1")
    assert reason(scripted) == "CONTENT_TYPE_NOT_SUPPORTED"


def test_a_version_that_is_not_spoken(cast: Cast) -> None:
    for version in ("0.3", "1.5", "2.0", "1", "1.0.0.1", "x"):
        answer = cast.member.with_headers(A2A_Version=version).send()
        assert status_of(answer) == (400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED")
        assert cast.member.ask("GET", f"/tasks?A2A-Version={version}").status_code == 400
    for version in ("1.0", "1.0.1", "1.0.17", ""):
        assert cast.member.with_headers(A2A_Version=version).send().status_code == 200


def test_an_agent_without_behaviors(cast: Cast) -> None:
    bare = cast.front.identity.deployment(cast.acme)
    client = cast.at(bare, str(cast.member.authorization))
    assert status_of(client.send()) == (400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION")
    extended = client.ask("GET", "/extendedAgentCard")
    assert status_of(extended) == (400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED")


def test_a_skill_that_the_agent_has_not(cast: Cast) -> None:
    wrong = cast.member.ask(
        "POST",
        "/message:send",
        json={"message": request("x")["message"] | {"metadata": {"skillId": "no such"}}},
    )
    assert reason(wrong) == "INVALID_PARAMS"
    right = cast.member.ask(
        "POST",
        "/message:send",
        json={"message": request("x")["message"] | {"metadata": {"skillId": str(cast.behavior.id)}}},
    )
    assert right.status_code == 200


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("{", "INVALID_REQUEST"),
        ('{"message":{"messageId":"1","messageId":"2"}}', "INVALID_REQUEST"),
        ("[" * 100 + "]" * 100, "INVALID_REQUEST"),
        ("", "INVALID_PARAMS"),
        ("[]", "INVALID_PARAMS"),
        ("{}", "INVALID_PARAMS"),
        ('{"message":null}', "INVALID_PARAMS"),
        ('{"message":{"messageId":"1","role":"user","parts":[{"text":"x"}]}}', "INVALID_PARAMS"),
        ('{"message":{"messageId":"1","role":"ROLE_USER","parts":[]}}', "INVALID_PARAMS"),
        ('{"message":{"messageId":"1","role":"ROLE_USER","parts":[{"raw":"!!!"}]}}', "INVALID_PARAMS"),
        ('{"message":{"messageId":"\\u0000","role":"ROLE_USER","parts":[{"text":"x"}]}}', "INVALID_PARAMS"),
        (
            '{"message":{"messageId":"1","contextId":"%s","role":"ROLE_USER","parts":[{"text":"x"}]}}'
            % ("c" * 256),
            "INVALID_PARAMS",
        ),
        (
            '{"message":{"messageId":"1","role":"ROLE_USER","parts":[{}]},"configuration":null}',
            "INVALID_PARAMS",
        ),
    ],
)
def test_a_body_that_is_no_message(cast: Cast, body: str, expected: str) -> None:
    answer = cast.member.ask("POST", "/message:send", data=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, reason(answer)) == (400, expected)


@pytest.mark.parametrize("content_type", ["application/json", "application/a2a+json", "text/plain", None])
def test_body_is_parsed_with_any_media_type(cast: Cast, content_type: str | None) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    answer = cast.member.ask("POST", "/message:send", data=json.dumps(request("ping")), headers=headers)
    assert answer.status_code == 200
    expected = "application/a2a+json" if content_type == "application/a2a+json" else "application/json"
    assert answer.mimetype == expected


def test_a2a_media_type_is_returned_if_accepted(cast: Cast) -> None:
    client = cast.member.with_headers(Accept="application/a2a+json")
    assert client.ask("GET", "/tasks").mimetype == "application/a2a+json"
    for other in (
        "application/a2a+json;q=0",
        "application/*",
        "application/json, application/a2a+json;q=0.9",
    ):
        assert cast.member.with_headers(Accept=other).ask("GET", "/tasks").mimetype == "application/json", (
            other
        )


def test_text_with_nul_and_odd_characters_passes(cast: Cast) -> None:
    odd = "echo \u0000 \u2028 \U0001f600 \x7f"
    task = cast.member.task(odd)
    assert task["history"][0]["parts"] == [{"text": odd}]


def test_unauthorized_callers_are_refused(cast: Cast) -> None:
    nobody = Client(cast.front, cast.member.prefix, None, {})
    missing = nobody.send()
    assert status_of(missing) == (401, "UNAUTHENTICATED", "AUTHENTICATION_REQUIRED")
    assert missing.headers["WWW-Authenticate"].startswith("Bearer")
    wrong = Client(cast.front, cast.member.prefix, "Bearer nonsense", {}).send()
    assert status_of(wrong) == (401, "UNAUTHENTICATED", "INVALID_TOKEN")
    assert status_of(cast.stranger.send()) == (403, "PERMISSION_DENIED", "PERMISSION_DENIED")
    scope = cast.front.identity.authorization(cast.caller_agent, "FileRead")
    assert status_of(cast.client(scope).send()) == (403, "PERMISSION_DENIED", "PERMISSION_DENIED")
    operator = cast.front.identity.operator()
    unbound = cast.client(operator.authorization).send()
    assert status_of(unbound)[2] == "BILLING_ORGANIZATION_REQUIRED"


def test_agents_that_are_not_there(cast: Cast) -> None:
    absent = Client(cast.front, f"/agents/{uuid4()}", cast.member.authorization, {})
    assert status_of(absent.send()) == (404, "NOT_FOUND", "AGENT_NOT_FOUND")
    assert status_of(absent.ask("GET", "/.well-known/agent-card.json"))[2] == "AGENT_NOT_FOUND"
    nameless = Client(cast.front, "/agents/nonsense", cast.member.authorization, {})
    assert status_of(nameless.send()) == (404, "NOT_FOUND", "METHOD_NOT_FOUND")
    assert status_of(cast.member.ask("PUT", "/tasks"))[1:] == ("UNIMPLEMENTED", "METHOD_NOT_FOUND")


def test_a_stream_too_many(cast: Cast, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = cast.front.settings
    with open_front(
        settings.database_url, settings.redis_url, tmp_path_factory.mktemp("blobs"), streams_per_caller=1
    ) as front:
        client = Client(front, cast.member.prefix, cast.member.authorization, {})
        task = cast.member.task("ask")
        first = client.ask("GET", f"/tasks/{task['id']}:subscribe", buffered=False)
        second = client.ask("GET", f"/tasks/{task['id']}:subscribe")
        assert status_of(second) == (429, "RESOURCE_EXHAUSTED", "TOO_MANY_STREAMS")
        assert second.headers["Retry-After"]
        for path in ("/message:send", "/message:stream"):
            refused = client.send("nobody takes this", path=path, taskId=task["id"])
            assert status_of(refused) == (429, "RESOURCE_EXHAUSTED", "TOO_MANY_STREAMS")
        assert (
            cast.member.read(task["id"]) == task
        )  # a refused message was not accepted, and may be sent again
        first.close()
        again = client.ask("GET", f"/tasks/{task['id']}:subscribe", buffered=False)
        assert again.status_code == 200
        again.close()
        front.services.agents.watch.close()


def test_a_stream_too_many_for_the_organization(cast: Cast, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = cast.front.settings
    with open_front(
        settings.database_url,
        settings.redis_url,
        tmp_path_factory.mktemp("blobs"),
        streams_per_process=1,
        slot_wait_seconds=0,
    ) as front:
        member = Client(front, cast.member.prefix, cast.member.authorization, {})
        colleague = Client(front, cast.member.prefix, cast.colleague.authorization, {})
        task = cast.member.task("ask")
        first = member.ask("GET", f"/tasks/{task['id']}:subscribe", buffered=False)
        for path in ("/message:send", "/message:stream"):
            refused = colleague.send("nobody takes this", path=path)
            assert status_of(refused) == (429, "RESOURCE_EXHAUSTED", "CONCURRENCY_LIMIT")
            assert refused.headers["Retry-After"]
        assert cast.colleague.list()["totalSize"] == 0
        assert colleague.send("hello", configuration={"returnImmediately": True}).status_code == 200
        first.close()
        front.services.agents.watch.close()


def test_unexpected_error_has_the_protocol_format(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "list_page", lambda *_: 1 / 0)
    assert status_of(cast.member.ask("GET", "/tasks")) == (500, "INTERNAL", "INTERNAL_ERROR")


@pytest.mark.parametrize(
    "query",
    [
        "/tasks?statusTimestampAfter=0001-01-01T00:00:00%2B10:00",
        "/tasks?statusTimestampAfter=9999-12-31T23:59:59-10:00",
        "/tasks?contextId=a%00b",
        "/tasks/{task}/pushNotificationConfigs?pageToken=AAAA",
    ],
)
def test_impossible_values_are_refused(cast: Cast, query: str) -> None:
    task = cast.member.task("work")
    refused = cast.member.ask("GET", query.format(task=task["id"]))
    assert status_of(refused) == (400, "INVALID_ARGUMENT", "INVALID_PARAMS")


def test_impossible_configuration_ids_are_refused(cast: Cast) -> None:
    path = f"/tasks/{cast.member.task('work')['id']}/pushNotificationConfigs/%00"
    assert status_of(cast.member.ask("GET", path)) == (404, "NOT_FOUND", "TASK_NOT_FOUND")
    assert cast.member.ask("DELETE", path).status_code == 200


def test_settings_that_disable_features(cast: Cast, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = cast.front.settings
    with open_front(
        settings.database_url,
        settings.redis_url,
        tmp_path_factory.mktemp("blobs"),
        a2a_require_version=True,
        a2a_push_notifications=False,
        max_message_bytes=1000,
        a2a_wait_seconds=0.2,
    ) as front:
        client = Client(front, cast.member.prefix, cast.member.authorization, {})
        assert status_of(client.ask("GET", "/tasks"))[2] == "VERSION_NOT_SUPPORTED"
        assert client.ask("GET", "/tasks?A2A-Version=1.0").status_code == 200
        client = client.with_headers(A2A_Version="1.0")
        card = client.ask("GET", "/.well-known/agent-card.json").get_json()
        assert card["capabilities"]["pushNotifications"] is False
        for answer in (
            client.ask("GET", f"/tasks/{uuid4()}/pushNotificationConfigs"),
            client.send(configuration={"taskPushNotificationConfig": {"url": "https://hooks.example/"}}),
        ):
            assert status_of(answer) == (400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED")
        assert status_of(client.send("x" * 1000))[:2] == (413, "INVALID_ARGUMENT")
        # The agent never finishes this message. The wait ends, and the response is the current task.
        assert client.task("hang")["status"]["state"] in {"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}
        front.services.agents.watch.close()


def test_everything_is_found_at_the_root_as_well(
    cast: Cast, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = cast.front.settings
    with open_front(
        settings.database_url,
        settings.redis_url,
        tmp_path_factory.mktemp("blobs"),
        default_agent=str(cast.agent.deployment.id),
    ) as front:
        root = Client(front, "", cast.member.authorization, {})
        task = cast.member.task("work")
        assert root.read(task["id"]) == task
        assert root.ask("GET", "/.well-known/agent-card.json").get_json()["name"] == "Helper"
        assert root.list()["totalSize"] >= 1


def test_the_default_agent_is_the_oldest(front: Front, cast: Cast) -> None:
    card = front.get("/.well-known/agent-card.json").get_json()
    assert card["name"] == "Helper"
    assert card["supportedInterfaces"][0]["url"] == front.settings.base_url


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{\n "message": }', "Expecting value, at line 2, column 13."),
        (b'{"message": {"n": 1, "n": 2}}', 'the key "n" is repeated in an object'),
        (b'{"message": NaN}', "NaN is not JSON"),
        (b'{"message": "\xff"}', "byte 13 does not begin a character"),
        (b'{"message": "\\ud800"}', "half of a surrogate pair"),
        (b"[" * 65 + b"]" * 65, "deeper than 64 levels"),
        (b"[" + b"[]," * 100_001 + b"[]]", "more than 100,000 objects and arrays"),
    ],
)
def test_malformed_json_error_names_position_or_limit(cast: Cast, body: bytes, said: str) -> None:
    answer = cast.member.ask("POST", "/message:send", data=body)
    assert (answer.status_code, reason(answer)) == (400, "INVALID_REQUEST")
    assert said in answer.get_json()["error"]["message"]
